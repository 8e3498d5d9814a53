package preemption

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// opinion is a plugin of another author, with an opinion on gangs. It is found by itself.
type opinion struct {
	refusal string
	domains []extensionpoints.Domain
	ids     []string
}

func (o *opinion) Name() string { return "Opinion" }

func (o *opinion) Reserve(context.Context, fwk.CycleState, *v1.Pod, string) *fwk.Status { return nil }
func (o *opinion) Unreserve(context.Context, fwk.CycleState, *v1.Pod, string)           {}

func (o *opinion) GangPredicate(context.Context, extensionpoints.Gang, []fwk.NodeInfo) *fwk.Status {
	if o.refusal == "" {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, o.refusal)
}

func (o *opinion) GangSearchSpace(context.Context, extensionpoints.Gang, []fwk.NodeInfo, extensionpoints.Purpose) ([]extensionpoints.Domain, *fwk.Status) {
	return o.domains, nil
}

func (o *opinion) GangVictimSelector(context.Context, extensionpoints.Gang, victim.Vector, []victim.Gang) ([]string, bool) {
	return o.ids, o.ids != nil
}

// TestPointsOfVictims: the answers of plugins of the profile count.
func TestPointsOfVictims(t *testing.T) {
	nodes := []*v1.Node{node("n0", 4, "r0"), node("n1", 4, "r1")}
	pods := slices.Concat(members("a", 4, 4, 10, 1, "n0"), members("b", 4, 4, 20, 1, "n1"))
	const a, b = profile + "/default/a", profile + "/default/b"
	for sentence, c := range map[string]struct {
		opinion opinion
		want    string
	}{
		"without an opinion the lower priority goes":      {want: "a-0 a-1 a-2 a-3"},
		"where one refuses the gang nobody goes":          {opinion{refusal: "too big"}, "none"},
		"room is made in the first domain that one names": {opinion{domains: []extensionpoints.Domain{{Nodes: []string{"n1"}}, {Nodes: []string{"n0"}}}}, "b-0 b-1 b-2 b-3"},
		"one may choose whom to take":                     {opinion{ids: []string{b, a}}, "b-0 b-1 b-2 b-3"},
		"and whom not":                                    {opinion{ids: []string{}}, "none"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStageWith(t, &c.opinion, nodes, pods)
			if got := s.victimsOf(t, s.demand(t, gangspec.Spec{}, members("p", 2, 2, 100, 1)...)); got != c.want {
				t.Errorf("victims %q, want %q", got, c.want)
			}
		})
	}
}

// TestPointsOfPlans: the same plugins are asked when there is room.
func TestPointsOfPlans(t *testing.T) {
	nodes := []*v1.Node{node("n0", 4, "r0"), node("n1", 4, "r1"), node("n2", 1, "r1"), node("n3", 3, "r1"), node("n4", 0, "r1")}
	domains := func(names ...string) opinion {
		var o opinion
		for _, name := range names {
			o.domains = append(o.domains, extensionpoints.Domain{Name: name, Nodes: []string{name, "gone"}})
		}
		return o
	}
	for sentence, c := range map[string]struct {
		opinion opinion
		partial bool
		on      []string
		why     string
	}{
		"a gang that one refuses is not placed, and told why": {opinion{refusal: "too big"}, false, nil, `gang "default/p" cannot fit: too big`},
		"the first domain that takes the whole gang is it":    {domains("n2", "n1", "n0"), false, []string{"n1"}, ""},
		"unless one after it is tighter":                      {domains("n2", "n1", "n3"), false, []string{"n3"}, ""},
		"where none does nothing is held":                     {domains("n2", "n4"), false, nil, `gang "default/p": 1 of 2 members fit; short 1 nvidia.com/gpu (of 5 nodes: 1 Insufficient nvidia.com/gpu)`},
		"but what a NonStrict gang can in the best, it can":   {domains("n2", "n4"), true, []string{"n2"}, `gang "default/p": 1 of 2 members fit; short 1 nvidia.com/gpu (of 5 nodes: 1 Insufficient nvidia.com/gpu)`},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStageWith(t, &c.opinion, nodes, nil)
			d := s.demand(t, gangspec.Spec{}, members("p", 2, 2, 100, 1)...)
			d.attempt.Strict = !c.partial
			plan, err := s.planner().Plan(s.ctx, d.attempt, nil)
			must.Succeed(t, err)
			var on []string
			for _, name := range plan.Nodes {
				if !slices.Contains(on, name) {
					on = append(on, name)
				}
			}
			if why := plan.Why[d.attempt.Gangs[0].Key]; !slices.Equal(on, c.on) || why != c.why || plan.Complete != (c.why == "") {
				t.Errorf("placed on %v, because %q; want %v, %q", on, why, c.on, c.why)
			}
		})
	}
}
