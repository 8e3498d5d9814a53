package defragmentation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// ask creates a plan as a user would, and makes a round. It returns the result: which pods are moved and to where,
// or the reason and the message.
func (s *stage) ask(tb testing.TB, goal v1alpha1.DefragmentationGoal, scheduler string) (moves, why string, status v1alpha1.DefragmentationPlanStatus) {
	tb.Helper()
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "asked", UID: "asked"}}
	p.Spec.Goal, p.Spec.SchedulerName = goal, scheduler
	must.Succeed(tb, s.scheduler.Client.Create(tb.Context(), p))
	plans := s.balance(tb)
	if len(plans) != 1 || len(plans[0].Status.Conditions) != 1 {
		tb.Fatalf("%d plans: %+v", len(plans), plans)
	}
	var pods, targets []string // pods that are alike are interchangeable
	for _, m := range plans[0].Status.Moves {
		pods, targets = append(pods, m.PodName), append(targets, m.TargetNode)
	}
	slices.Sort(pods)
	slices.Sort(targets)
	if len(pods) > 0 {
		moves = strings.Join(pods, " ") + " > " + strings.Join(targets, " ")
	}
	c := plans[0].Status.Conditions[0]
	return moves, c.Reason + ": " + c.Message, plans[0].Status
}

// TestShape: room is made for so many more gangs of a shape than fit, and is not held.
func TestShape(t *testing.T) {
	nodes := []*v1.Node{node("a0", 4, "a"), node("a1", 4, "a"), node("b0", 4, "b"), node("b1", 4, "b"), node("c0", 8, "c")}
	cost := func(n string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Annotations = map[string]string{v1.PodDeletionCost: n} }
	}
	pods := []*v1.Pod{runs("p", 1, "a0"), runs("q", 1, "a1", cost("10")), runs("r", 3, "b0", cost("20")), runs("s", 3, "b1", cost("20")), runs("t", 8, "c0")}
	whole := v1.ResourceList{gpu: resource.MustParse("4")}
	for sentence, c := range map[string]struct {
		goal          v1alpha1.GangShape
		profile       string
		moves, why    string
		before, after int32
	}{
		"one of two in one rack":  {goal: v1alpha1.GangShape{Members: 2, Requests: whole, Topology: rack, More: 1}, moves: "p q > b0 b1", after: 1},
		"anywhere, one is enough": {goal: v1alpha1.GangShape{Members: 1, Requests: whole, More: 1}, moves: "p > ", after: 1},
		"beside those that fit":   {goal: v1alpha1.GangShape{Members: 1, Requests: v1.ResourceList{gpu: resource.MustParse("3")}, More: 1}, why: "NoPlan: no plan within 32 moves and 4 gangs makes room for one more gang of 1 x 3 nvidia.com/gpu"},
		"two of them":             {goal: v1alpha1.GangShape{Members: 1, Requests: whole, More: 2}, moves: "p q > b0 b1", after: 2},
		"too big for any rack":    {goal: v1alpha1.GangShape{Members: 3, Requests: whole, Topology: rack, More: 1}, why: "NoPlan: one more gang of 3 x 4 nvidia.com/gpu in one " + rack + " would not fit on the nodes if they were empty"},
		"no node has the label":   {goal: v1alpha1.GangShape{Members: 1, Requests: whole, Topology: "nosuch", More: 1}, why: "NoPlan: no node has the label nosuch"},
		"no profile of that name": {goal: v1alpha1.GangShape{Members: 1, Requests: whole, More: 1}, profile: "other", why: `NoPlan: no profile has spec.schedulerName "other": there are lockstep-scheduler`},
	} {
		t.Run(sentence, func(t *testing.T) {
			moves, why, status := newStage(t, nodes, pods, "{}").ask(t, v1alpha1.DefragmentationGoal{Shape: &c.goal}, cmp.Or(c.profile, profile))
			if !strings.HasPrefix(moves, c.moves) || (moves == "") != (c.moves == "") || !strings.HasPrefix(why, c.why) {
				t.Fatalf("moves %q, %s; want %q, %s", moves, why, c.moves, c.why)
			}
			if c.moves != "" && (status.Predicted == nil || status.Predicted.Before != c.before || status.Predicted.After != c.after || len(status.Places) > 0) {
				t.Errorf("predicted %+v, places %v", status.Predicted, status.Places)
			}
		})
	}
}

// TestEmpty: units are emptied, all of them or none is touched.
func TestEmpty(t *testing.T) {
	nodes := []*v1.Node{node("a0", 4, "a"), node("a1", 4, "a"), node("b0", 4, "b"), node("b1", 4, "b")}
	daemon := func(pod *v1.Pod) { pod.OwnerReferences[0].Kind = "DaemonSet" }
	bare := func(pod *v1.Pod) { pod.OwnerReferences = nil }
	used := []*v1.Pod{runs("p", 1, "a0"), runs("q", 1, "a1"), runs("d", 0, "a0", daemon), runs("r", 2, "b0"), runs("s", 3, "b1")}
	for sentence, c := range map[string]struct {
		pods       []*v1.Pod
		goal       v1alpha1.EmptyUnits
		moves, why string
	}{
		"a rack":               {pods: used, goal: v1alpha1.EmptyUnits{Unit: rack, Names: []string{"a"}}, moves: "p q > b0 b1"},
		"a node":               {pods: used, goal: v1alpha1.EmptyUnits{Names: []string{"a0"}}, moves: "p > b1"},
		"there is no such":     {pods: used, goal: v1alpha1.EmptyUnits{Unit: rack, Names: []string{"z"}}, why: "NoPlan: no node has the label " + rack + "=z"},
		"there is no room":     {pods: used, goal: v1alpha1.EmptyUnits{Unit: rack, Names: []string{"a", "b"}}, why: "NoPlan: a cannot be emptied: its 2 pods have no place elsewhere"},
		"a pod may not move":   {pods: append(slices.Clone(used), runs("x", 0, "a0", bare)), goal: v1alpha1.EmptyUnits{Names: []string{"a0"}}, why: "NoPlan: a0 cannot be emptied: 1 pods on it may not be moved: default/x (no controller makes it again)"},
		"unless it may stay":   {pods: append(slices.Clone(used), runs("x", 0, "a0", bare)), goal: v1alpha1.EmptyUnits{Names: []string{"a0"}, Resource: gpu}, moves: "p > b1"},
		"it is empty as it is": {pods: used[2:], goal: v1alpha1.EmptyUnits{Names: []string{"a0"}}, why: "NothingToDo: the goal already holds"},
	} {
		t.Run(sentence, func(t *testing.T) {
			moves, why, _ := newStage(t, nodes, c.pods, "{}").ask(t, v1alpha1.DefragmentationGoal{Empty: &c.goal}, profile)
			if moves != c.moves || !strings.HasPrefix(why, c.why) {
				t.Fatalf("moves %q, %s; want %q, %s", moves, why, c.moves, c.why)
			}
		})
	}
}

// TestClaimsAreNotCounted: where pods have devices of ResourceClaims, what is found says that such devices are not
// counted, and such pods not moved.
func TestClaimsAreNotCounted(t *testing.T) {
	claim := func(pod *v1.Pod) { pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu"}} }
	backed := func(pod *v1.Pod) {
		pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: "x-gpu"}
	}
	ended := func(pod *v1.Pod) { pod.Status.Phase = v1.PodSucceeded }
	const note = "; devices of ResourceClaims are not counted, and pods that have some are not moved: "
	nodes, small := []*v1.Node{node("a0", 4, "a"), node("a1", 4, "a"), node("a2", 4, "a")}, runs("p", 1, "a0")
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		name string // of the node to empty
		why  string
	}{
		"no pod has any":                 {[]*v1.Pod{small}, "a0", "Found: 1 moves, 1 pods start anew"},
		"one has, and stays":             {[]*v1.Pod{small, runs("q", 0, "a1", claim)}, "a0", "Found: 1 moves, 1 pods start anew" + note + "1 pod"},
		"one for an extended resource":   {[]*v1.Pod{small, runs("q", 0, "a1", backed)}, "a2", "NothingToDo: the goal already holds" + note + "1 pod"},
		"two have, and are in the way":   {[]*v1.Pod{runs("q", 0, "a0", claim), runs("r", 0, "a0", claim)}, "a0", "NoPlan: a0 cannot be emptied: 2 pods on it may not be moved: default/q (it has volumes or devices), default/r (it has volumes or devices)" + note + "2 pods"},
		"one had, and has ended":         {[]*v1.Pod{small, runs("q", 0, "a1", claim, ended)}, "a0", "Found: 1 moves, 1 pods start anew"},
		"one waits, and has none so far": {[]*v1.Pod{small, waits("q", 0, claim)}, "a0", "Found: 1 moves, 1 pods start anew"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, why, _ := newStage(t, nodes, c.pods, "{}").ask(t, v1alpha1.DefragmentationGoal{Empty: &v1alpha1.EmptyUnits{Names: []string{c.name}}}, profile)
			if why != c.why {
				t.Errorf("found %q, want %q", why, c.why)
			}
		})
	}
}

// TestThreshold: units with little use are emptied onto those with more use, and only if there are enough.
func TestThreshold(t *testing.T) {
	nodes := []*v1.Node{node("n0", 10, "a"), node("n1", 10, "a"), node("n2", 10, "b"), node("n3", 10, "b")}
	pods := []*v1.Pod{runs("p", 1, "n0"), runs("q", 1, "n1"), runs("r", 8, "n2")}
	for sentence, c := range map[string]struct{ args, moves string }{
		"the least used go where most is used": {args: `{"mode": "Threshold"}`, moves: "p n0>n2, q n1>n2"},
		"not so few of them":                   {args: `{"mode": "Threshold", "numberOfNodes": 3}`},
		"none is used so little":               {args: `{"mode": "Threshold", "lowThresholds": {"nvidia.com/gpu": 10}}`},
		"targets are used by so much":          {args: `{"mode": "Threshold", "defragmentThresholds": {"nvidia.com/gpu": 90}}`},
		"and not by more than that":            {args: `{"mode": "Threshold", "protectionThresholds": {"nvidia.com/gpu": 90}}`, moves: "p n0>n2"},
		"a rack is one unit":                   {args: `{"mode": "Threshold", "unit": "` + rack + `"}`, moves: "p n0>n2, q n1>n2"},
		"no more than the budget":              {args: `{"mode": "Threshold", "maxMoves": 1}`, moves: "p n0>n2"},
		"what is gained has to be worth it":    {args: `{"mode": "Threshold", "minGain": 1001}`},
		"by default only for who waits":        {args: `{}`},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, nodes, pods, c.args)
			plans := s.balance(t)
			var list []string
			for _, p := range plans {
				for _, m := range p.Status.Moves {
					list = append(list, fmt.Sprintf("%s %s>%s", m.PodName, m.SourceNode, m.TargetNode))
				}
			}
			slices.Sort(list)
			if got := strings.Join(list, ", "); got != c.moves {
				t.Fatalf("moves %q, want %q", got, c.moves)
			}
			if len(plans) > 0 && (plans[0].Spec.Goal.Empty == nil || len(plans[0].Spec.Goal.Empty.Names) == 0 || plans[0].Spec.Goal.Empty.Resource != gpu) {
				t.Errorf("its goal is %+v", plans[0].Spec.Goal)
			}
		})
	}
}

// TestMinGain: a gang is not restarted for a demand that asks for less than the gang does.
func TestMinGain(t *testing.T) {
	nodes := []*v1.Node{node("n0", 4, "a"), node("n1", 4, "a"), node("n2", 4, "b")}
	strict := []*v1.Pod{runs("s0", 1, "n0", inGang("s")), runs("s1", 4, "n2", inGang("s"))}
	for args, want := range map[string]string{"{}": "", `{"minGain": 80}`: "s0 n0>n1", `{"minGain": 0}`: "s0 n0>n1"} {
		s := newStage(t, nodes, slices.Concat(strict, []*v1.Pod{runs("x", 2, "n1", func(pod *v1.Pod) { pod.OwnerReferences = nil }), waits("w", 4)}), args)
		s.running("s", 2, strict...)
		if got := s.moves(t); got != want {
			t.Errorf("with %s moves %q, want %q", args, got, want)
		}
	}
}

// TestMeasure: metrics show what is free, how many gangs of the shape fit, and which share of it is too little for a
// member.
func TestMeasure(t *testing.T) {
	registerMetrics()
	nodes := []*v1.Node{node("n0", 4, "a"), node("n1", 4, "a"), node("n2", 4, "b")}
	pods := []*v1.Pod{runs("p", 1, "n0"), runs("q", 3, "n1"), waits("w0", 4, inGang("w")), waits("w1", 4, inGang("w"))}
	s := newStage(t, nodes, pods, "{}")
	s.waiting("w", rack, pods[2:]...)
	busy := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "busy"}}
	busy.Spec.Mode, busy.Status.Phase = v1alpha1.DefragmentationExecute, v1alpha1.DefragmentationRunning
	busy.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DefragmentationFound}}
	must.Succeed(t, s.scheduler.Client.Create(t.Context(), busy))
	if plans := s.balance(t); len(plans) != 1 {
		t.Fatalf("%d plans, want the one that is under way", len(plans))
	}
	want := `
# HELP lockstep_defragmentation_fragmented_ratio [ALPHA] Which share of what is free of a resource lies on nodes where it is too little for a member of the gangs that wait, averaged over these members.
# TYPE lockstep_defragmentation_fragmented_ratio gauge
lockstep_defragmentation_fragmented_ratio{resource="nvidia.com/gpu"} 0.5
# HELP lockstep_defragmentation_free [ALPHA] How much of a resource is free on all nodes, and not held.
# TYPE lockstep_defragmentation_free gauge
lockstep_defragmentation_free{resource="nvidia.com/gpu"} 8
# HELP lockstep_defragmentation_gangs_fit [ALPHA] How many gangs of a shape that waits for room fit as things are, by domain of its required topology; the domain is empty for one without.
# TYPE lockstep_defragmentation_gangs_fit gauge
lockstep_defragmentation_gangs_fit{domain="a",shape="2 x 4 nvidia.com/gpu in one topology.example.com/rack"} 0
lockstep_defragmentation_gangs_fit{domain="b",shape="2 x 4 nvidia.com/gpu in one topology.example.com/rack"} 0
`
	names := []string{"lockstep_defragmentation_fragmented_ratio", "lockstep_defragmentation_free", "lockstep_defragmentation_gangs_fit"}
	if err := testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}
