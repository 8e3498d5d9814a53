package preemption

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// TestSearchForWhatIsAskedForBesideTheMinimum: victims make room for all of it, or stay.
func TestSearchForWhatIsAskedForBesideTheMinimum(t *testing.T) {
	nodes := []*v1.Node{node("n0", 4, "r0"), node("n1", 4, "r1")}
	for sentence, c := range map[string]struct {
		pods    []*v1.Pod
		floor   int64
		spec    gangspec.Spec
		opinion opinion
		want    string
	}{
		"without it one is enough":            {pods: members("low", 8, 1, 10, 1, "n0", "n1"), want: "low-7"},
		"with it all of it is made":           {pods: members("low", 8, 1, 10, 1, "n0", "n1"), floor: 4, want: "low-4 low-5 low-6 low-7"},
		"what is free anywhere counts":        {pods: members("low", 5, 1, 10, 1, "n0", "n0", "n0", "n0", "n1"), floor: 5, want: "low-3 low-4"},
		"nobody goes where it is not enough":  {pods: slices.Concat(members("low", 3, 1, 10, 1, "n0", "n1"), members("high", 4, 1, 100, 1, "n0", "n1")), floor: 5, want: "none"},
		"nor where a gang would have to stay": {pods: slices.Concat(members("low", 4, 1, 10, 1, "n0"), members("high", 4, 4, 100, 1, "n1")), floor: 5, want: "none"},
		"a required rack has to have it":      {pods: slices.Concat(members("a", 4, 1, 10, 1, "n0"), members("high", 1, 1, 100, 1, "n1"), members("b", 3, 1, 50, 1, "n1")), floor: 4, spec: gangspec.Spec{RequiredTopology: rack}, want: "a-0 a-1 a-2 a-3"},
		"so has the domain that a plugin names": {
			pods: members("a", 4, 1, 10, 1, "n0"), floor: 5, opinion: opinion{domains: []extensionpoints.Domain{{Nodes: []string{"n0"}}}}, want: "none",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStageWith(t, &c.opinion, nodes, c.pods)
			if c.floor > 0 {
				c.spec.MinResources = resource.Vector{gpu: c.floor}
			}
			if got := s.victimsOf(t, s.demand(t, c.spec, members("p", 1, 1, 100, 1)...)); got != c.want {
				t.Errorf("victims %q, want %q", got, c.want)
			}
		})
	}
}

// TestNeedOfManyGangs: what gangs that start together ask for adds up to what is more than anything has, and to nothing
// less.
func TestNeedOfManyGangs(t *testing.T) {
	s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, nil)
	a, pods := &gangstate.Attempt{Group: "g", Strict: true}, members("p", 10, 1, 100, 1)
	for _, pod := range pods {
		a.Gangs = append(a.Gangs, gangstate.Need{Min: 1, Pending: []*v1.Pod{pod}, Floor: resource.Vector{gpu: resource.MaxOfAll}})
	}
	state := framework.NewCycleState()
	planner.WriteAttempt(state, a)
	d, err := s.demandOf(state, pods[0])
	if err != nil || d.need[gpu] != resource.MaxOfAll {
		t.Errorf("it needs %s, %v, want %d", d.need, err, resource.MaxOfAll)
	}
}
