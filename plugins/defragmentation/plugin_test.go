package defragmentation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/cputime"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestWhoMoves: the cheapest moves are made, of pods that may be moved, to where the filters let them.
func TestWhoMoves(t *testing.T) {
	bare := func(pod *v1.Pod) { pod.OwnerReferences = nil }
	workflow := func(pod *v1.Pod) {
		pod.OwnerReferences[0].APIVersion, pod.OwnerReferences[0].Kind = "argoproj.io/v1alpha1", "Workflow"
	}
	label := func(pod *v1.Pod) { pod.Labels = map[string]string{"app": "guarded"} }
	priority := func(n int32) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Spec.Priority = &n } }
	volume := func(pod *v1.Pod) {
		pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
	elsewhere := func(pod *v1.Pod) { pod.Spec.SchedulerName = "default-scheduler" }
	namespace := func(name string) func(*v1.Pod) { return func(pod *v1.Pod) { pod.Namespace = name } }
	cost := func(pod *v1.Pod) { pod.Annotations = map[string]string{v1.PodDeletionCost: "10"} }
	only := func(where string) func(*v1.Pod) {
		return func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: where} }
	}
	critical := func(n *v1.Node) *v1.Node {
		n.Labels["critical"] = "true"
		return n
	}
	two := []*v1.Node{node("n0", 3, "r0"), node("n1", 3, "r0")}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "guard"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}}},
	}
	for sentence, c := range map[string]struct {
		nodes   []*v1.Node
		pods    []*v1.Pod
		args    string
		objects []runtime.Object
		want    string
	}{
		"one of two nodes is cleared":           {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1"), waits("w", 3)}, want: "b n1>n0"},
		"there is room":                         {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), waits("w", 3)}},
		"it would not fit anyhow":               {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1"), waits("w", 4)}},
		"nobody has said so yet":                {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1"), waits("w", 3, func(p *v1.Pod) { p.Status.Conditions = nil })}},
		"room is promised to it":                {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0"), runs("b", 1, "n1"), waits("w", 3, func(p *v1.Pod) { p.Status.NominatedNodeName = "n0" })}},
		"room is being made":                    {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0"), runs("b", 1, "n1", ending), waits("w", 3)}},
		"not for so long":                       {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1"), waits("w", 3)}, args: `{"waitedFor": "1h"}`},
		"what a workflow makes of it who knows": {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", workflow), waits("w", 3)}},
		"its user does":                         {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", workflow), waits("w", 3)}, args: `{"controllerKinds": ["Workflow.argoproj.io"]}`, want: "b n1>n0"},
		"a bare pod stays":                      {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", bare), waits("w", 3)}},
		"unless it may go":                      {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", bare), waits("w", 3)}, args: `{"evictBarePods": true}`, want: "b n1>n0"},
		"what is more important stays":          {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", priority(1)), waits("w", 3)}},
		"a pod with a volume stays":             {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", volume), waits("w", 3)}},
		"another scheduler's stays":             {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", elsewhere), waits("w", 3)}},
		"a namespace is left alone":             {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", namespace("prod")), waits("w", 3)}, args: `{"evictableNamespaces": {"exclude": ["prod"]}}`},
		"from a critical node nobody goes":      {nodes: []*v1.Node{two[0], critical(node("n1", 3, "r0"))}, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1"), waits("w", 3)}},
		"one may come to it":                    {nodes: []*v1.Node{critical(node("n0", 3, "r0")), node("n1", 3, "r0")}, pods: []*v1.Pod{runs("a", 2, "n0"), runs("b", 1, "n1"), waits("w", 3)}, want: "b n1>n0"},
		"a budget allows nobody":                {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", label), waits("w", 3)}, objects: []runtime.Object{budget}},
		"it may not be anywhere else":           {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", only("n1")), waits("w", 3)}},
		"no target is used by more":             {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1"), waits("w", 3)}, args: `{"protectionThresholds": {"nvidia.com/gpu": 90}}`},
		"the cheaper of two goes":               {nodes: []*v1.Node{node("n0", 2, "r0"), node("n1", 2, "r0")}, pods: []*v1.Pod{runs("a", 1, "n0", cost), runs("b", 1, "n1"), waits("w", 2)}, want: "b n1>n0"},
		"a chain":                               {nodes: []*v1.Node{node("n0", 4, "r0"), node("n1", 2, "r0"), node("n2", 1, "r0")}, pods: []*v1.Pod{runs("a", 2, "n0"), runs("b", 1, "n1", func(p *v1.Pod) {}), waits("w", 4)}, want: "b n1>n2, a n0>n1"},
		"a budget of moves is kept":             {nodes: []*v1.Node{node("n0", 4, "r0"), node("n1", 2, "r0"), node("n2", 1, "r0")}, pods: []*v1.Pod{runs("a", 2, "n0"), runs("b", 1, "n1"), waits("w", 4)}, args: `{"maxMoves": 1}`},
		"what is refused is not tried again":    {nodes: []*v1.Node{node("n0", 3, "r0"), node("n1", 1, "r0"), node("n2", 1, "r0")}, pods: []*v1.Pod{runs("a", 1, "n0", apart), runs("c", 1, "n1", apart, func(p *v1.Pod) { p.Spec.Containers[0].Resources.Requests[gpu] = zero() }), waits("w", 3)}, want: "a n0>n2"},
		"one that ends is not in anybody's way": {nodes: two, pods: []*v1.Pod{runs("a", 2, "n0", only("n0")), runs("b", 1, "n1", func(p *v1.Pod) { p.Status.Phase = v1.PodPending }), waits("w", 3)}},
	} {
		t.Run(sentence, func(t *testing.T) {
			args := c.args
			if args == "" {
				args = "{}"
			}
			s := newStage(t, c.nodes, c.pods, args, c.objects...)
			if got := s.moves(t); got != c.want {
				t.Errorf("moves %q, want %q", got, c.want)
			}
		})
	}
}

// TestGangs: room is made for a gang as a whole, in one domain; a gang that would break costs all of it.
func TestGangs(t *testing.T) {
	nodes := []*v1.Node{node("a0", 4, "a"), node("a1", 4, "a"), node("b0", 4, "b"), node("b1", 4, "b"), node("c0", 4, "c")}
	strict := []*v1.Pod{runs("s0", 2, "a0", inGang("s")), runs("s1", 2, "a1", inGang("s")), runs("s2", 1, "c0", inGang("s"))}
	elastic := []*v1.Pod{runs("e0", 2, "b0", inGang("e")), runs("e1", 2, "b1", inGang("e"))}
	members := []*v1.Pod{waits("w0", 4, inGang("w")), waits("w1", 4, inGang("w"))}
	s := newStage(t, nodes, slices.Concat(strict, elastic, members), "{}")
	s.running("s", 3, strict...)
	s.running("e", 0, elastic...)
	s.waiting("w", rack, members...)
	plans := s.balance(t)
	if len(plans) != 1 {
		t.Fatalf("%d plans", len(plans))
	}
	var from []string
	for _, m := range plans[0].Status.Moves {
		from = append(from, m.SourceNode)
		if m.PodGroup != "e" || !strings.Contains(m.Why, `makes room for gang "default/w" on node b`) {
			t.Errorf("move %+v", m)
		}
	}
	if slices.Sort(from); !slices.Equal(from, []string{"b0", "b1"}) || plans[0].Status.Restarts != 2 {
		t.Errorf("moves from %v, %d restarts", from, plans[0].Status.Restarts)
	}
	p := plans[0].Status.Predicted
	if p == nil || p.Before != 0 || p.After != 1 || len(p.Domains) != 1 || p.Domains[0].Name != "b" {
		t.Errorf("predicted %+v", p)
	}
	if places := plans[0].Status.Places; len(places) != 2 || places[0].PodName != "w0" || places[0].Members != 1 {
		t.Errorf("places %+v", places)
	}
}

// TestGroupOfGangs: of gangs that start together each move names the one that the pod is in.
func TestGroupOfGangs(t *testing.T) {
	nodes := []*v1.Node{node("a0", 4, "a"), node("b0", 4, "b"), node("c0", 4, "c")}
	first, second := runs("f0", 4, "b0", inGang("f")), runs("s0", 2, "a0", inGang("s"))
	bare := func(pod *v1.Pod) { pod.OwnerReferences = nil } // it stays
	s := newStage(t, nodes, []*v1.Pod{first, second, runs("p", 2, "c0", bare), waits("w0", 4, inGang("w"))}, `{"minGain": 0}`)
	s.running("f", 0, first)
	s.running("s", 0, second)
	s.gangs.group = []gangspec.Key{{Namespace: "default", Name: "f"}, {Namespace: "default", Name: "s"}}
	s.waiting("w", "", waits("w0", 4, inGang("w")))
	plans := s.balance(t)
	if len(plans) != 1 || len(plans[0].Status.Moves) != 1 {
		t.Fatalf("plans: %+v", plans)
	}
	if m := plans[0].Status.Moves[0]; m.PodName != "s0" || m.PodGroup != "s" {
		t.Errorf("move %+v", m)
	}
}

// TestSucceededGone: a move says how many members of its gang are counted off the minimum, and gone.
func TestSucceededGone(t *testing.T) {
	nodes := []*v1.Node{node("a0", 4, "a"), node("b0", 4, "b"), node("c0", 4, "c")}
	bare := func(pod *v1.Pod) { pod.OwnerReferences = nil } // it stays
	pods := []*v1.Pod{runs("g0", 1, "a0", inGang("g")), runs("g1", 4, "b0", inGang("g"), bare), runs("p", 2, "c0", bare)}
	s := newStage(t, nodes, append(pods, waits("w", 4)), "{}")
	s.running("g", 1, pods[:2]...)
	f := s.gangs.running[gangspec.Key{Namespace: "default", Name: "g"}]
	f.Gone = 2
	s.gangs.running[f.Key] = f
	plans := s.balance(t)
	if len(plans) != 1 || plans[0].Status.Restarts != 1 || len(plans[0].Status.Moves) != 1 {
		t.Fatalf("plans: %+v", plans)
	}
	if m := plans[0].Status.Moves[0]; m.PodName != "g0" || m.SucceededGone != 2 {
		t.Errorf("move %+v", m)
	}
}

// TestSlices: room is made in one rack for each slice of a waiting gang, all of them in the block that is asked for; a
// running pod stays in the rack of its gang, or of its slice.
func TestSlices(t *testing.T) {
	const block = "topology.example.com/block"
	in := func(name string, n *v1.Node) *v1.Node {
		n.Labels[block] = name
		return n
	}
	nodes := []*v1.Node{
		in("x", node("a0", 2, "a")), in("x", node("a1", 2, "a")), in("x", node("b0", 2, "b")), in("x", node("b1", 2, "b")),
		in("y", node("c0", 2, "c")), in("y", node("c1", 2, "c")),
	}
	pin := func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: "b0"} }
	apart := []*v1.Node{in("y", node("d0", 2, "d")), in("y", node("d1", 2, "d"))}
	for sentence, c := range map[string]struct {
		nodes    []*v1.Node
		required string
		slices   []gangspec.Level
		runner   []string // slices of the gang that is in the way
		in       string   // the topology that it requires
		want     string
	}{
		"without slices there is room":     {nodes: nodes},
		"a rack is cleared for a slice":    {nodes: nodes, slices: []gangspec.Level{{Key: rack, Slice: 2}}, want: "p a0>b0"},
		"a gang in slices stays":           {nodes: nodes, slices: []gangspec.Level{{Key: rack, Slice: 2}}, runner: []string{rack}},
		"within larger slices it may move": {nodes: nodes, slices: []gangspec.Level{{Key: rack, Slice: 2}}, runner: []string{block}, want: "p a0>b0"},
		"a gang stays in its rack":         {nodes: nodes, slices: []gangspec.Level{{Key: rack, Slice: 2}}, in: rack},
		"a gang may move in its block":     {nodes: nodes, slices: []gangspec.Level{{Key: rack, Slice: 2}}, in: block, want: "p a0>b0"},
		"no block takes both":              {nodes: nodes, required: block, slices: []gangspec.Level{{Key: rack, Slice: 2}}},
		"a block does":                     {nodes: slices.Concat(nodes, apart), required: block, slices: []gangspec.Level{{Key: rack, Slice: 2}}, want: "z d0>b0"},
		"slices in slices":                 {nodes: slices.Concat(nodes, apart), slices: []gangspec.Level{{Key: block, Slice: 4}, {Key: rack, Slice: 2}}, want: "z d0>b0"},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := runs("p", 1, "a0", inGang("p"))
			pods := []*v1.Pod{p, runs("q", 1, "b0", pin)}
			if len(c.nodes) > len(nodes) {
				pods = append(pods, runs("z", 1, "d0"))
				p.Spec.Containers[0].Resources.Requests[gpu] = resource.MustParse("2")
				p.Spec.NodeSelector = map[string]string{v1.LabelHostname: "a0"}
			}
			var members []*v1.Pod
			for i := range 4 {
				members = append(members, waits(fmt.Sprint("w", i), 2, inGang("w")))
			}
			s := newStage(t, c.nodes, append(pods, members...), "{}")
			s.running("p", 0, p)
			f := s.gangs.running[gangspec.Key{Namespace: "default", Name: "p"}]
			f.Slices, f.RequiredTopology = c.runner, c.in
			s.gangs.running[f.Key] = f
			s.waiting("w", c.required, members...)
			s.gangs.waiting[0].Gangs[0].Spec.Layout = gangspec.Layout{Levels: c.slices}
			if got := s.moves(t); got != c.want {
				t.Errorf("moves %q, want %q", got, c.want)
			}
		})
	}
}

// TestRounds: one plan at a time; a demand that has a plan gets no other; a plan that a user asks for is answered.
func TestRounds(t *testing.T) {
	nodes := []*v1.Node{node("n0", 3, "r0"), node("n1", 3, "r0")}
	pods := []*v1.Pod{runs("a", 2, "n0"), runs("b", 1, "n1"), waits("w", 3)}
	s := newStage(t, nodes, pods, "{}")
	asked := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "asked"}}
	asked.Spec.Goal.Pod = &v1alpha1.ReservationOwnerObject{Namespace: "default", Name: "w", UID: "w"}
	wrong := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "wrong"}}
	wrong.Spec.Goal.PodGroup = "default/nosuch"
	absent := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "absent"}}
	absent.Spec.Goal.Pod = &v1alpha1.ReservationOwnerObject{Namespace: "default", Name: "nosuch", UID: "u"}
	if d, why := (&round{Defragmentation: &Defragmentation{scheduler: s.scheduler}}).asked(absent, nil); d != nil || !strings.HasPrefix(why, "spec.goal.pod: no pod default/nosuch with UID u waits") {
		t.Errorf("of a pod that does not exist it says %q", why)
	}
	for _, p := range []*v1alpha1.DefragmentationPlan{asked, wrong} {
		must.Succeed(t, s.scheduler.Client.Create(t.Context(), p))
	}
	s.balance(t) // one at a time: they may want the same nodes
	for range 2 {
		plans := s.balance(t)
		if len(plans) != 2 || len(plans[0].Status.Moves) != 1 || plans[0].Status.Phase != v1alpha1.DefragmentationPlanned {
			t.Fatalf("%d plans: %+v", len(plans), plans[0].Status)
		}
		if c := plans[1].Status.Conditions; len(c) != 1 || c[0].Reason != v1alpha1.DefragmentationReasonNone || !strings.Contains(c[0].Message, "no gang of that name waits") {
			t.Errorf("it says %+v", c)
		}
	}
	for _, c := range []struct {
		reason string
		moved  int32
		want   int
	}{{v1alpha1.DefragmentationReasonOutdated, 0, 2}, {v1alpha1.DefragmentationReasonMoveFailed, 0, 1}, {v1alpha1.DefragmentationReasonOutdated, 1, 1}} {
		again := newStage(t, nodes, pods, "{}")
		for _, p := range again.balance(t) {
			p.Status.Phase, p.Status.EndTime, p.Status.MovedCount = v1alpha1.DefragmentationFailed, new(metav1.NewTime(again.clock.Now())), c.moved
			p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: v1alpha1.DefragmentationComplete, Status: metav1.ConditionFalse, Reason: c.reason})
			must.Succeed(t, again.scheduler.Client.Status().Update(t.Context(), &p))
		}
		if plans := again.balance(t); len(plans) != c.want {
			t.Errorf("after one that ended as %s with %d moved, there are %d plans, want %d", c.reason, c.moved, len(plans), c.want)
		}
	}
	dry := newStage(t, nodes, pods, "{}")
	dry.dryRun = true
	if plans := dry.balance(t); len(plans) != 0 {
		t.Errorf("a dry run has written %d plans", len(plans))
	}
}

// TestRoomForALostMemberOfASlice: a gang of 4 without numbers in slices of 2 to a rack lost a member; what is left is a
// whole slice in one rack and half of one in the other, where p is in the way of the newcomer.
func TestRoomForALostMemberOfASlice(t *testing.T) {
	for sentence, whole := range map[string]string{"the whole slice is in the last rack": "b", "the whole slice is in the first rack": "a"} {
		t.Run(sentence, func(t *testing.T) {
			half := map[string]string{"a": "b", "b": "a"}[whole]
			nodes := []*v1.Node{node("a0", 2, "a"), node("a1", 2, "a"), node("b0", 2, "b"), node("b1", 2, "b"), node("c0", 2, "c")}
			var placed []gangstate.Placed
			var pods []*v1.Pod
			for name, on := range map[string]string{"w0": whole + "0", "w1": whole + "1", "w2": half + "0"} {
				pod := runs(name, 2, on, inGang("w"))
				pods, placed = append(pods, pod), append(placed, gangstate.Placed{Pod: pod, Node: on})
			}
			newcomer := waits("w3", 2, inGang("w"))
			pods = append(pods, runs("p", 1, half+"1"), newcomer)
			s := newStage(t, nodes, pods, "{}")
			s.waiting("w", "", newcomer)
			need := &s.gangs.waiting[0].Gangs[0]
			need.Placed, need.Spec.Min = placed, 4
			need.Ranks = map[types.UID]int{"w0": 0, "w1": 1, "w2": 2, "w3": 3} // as the gang numbers those without: by age
			need.Spec.Layout = gangspec.Layout{Levels: []gangspec.Level{{Key: rack, Slice: 2}}}
			if got, want := s.moves(t), "p "+half+"1>c0"; got != want {
				t.Errorf("moves %q, want %q", got, want)
			}
		})
	}
}

// BenchmarkRound measures a round for a gang that waits for a rack, where 6 of the 8 GPUs of each node are used one by
// one.
func BenchmarkRound(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{1000, 10}, {5000, 10}, {10000, 10}} {
		b.Run(fmt.Sprintf("nodes=%d/pods=%d", size.nodes, size.nodes*size.pods), func(b *testing.B) {
			var nodes []*v1.Node
			var pods, members []*v1.Pod
			for i := range size.nodes {
				nodes = append(nodes, node(fmt.Sprintf("n%d", i), 8, fmt.Sprintf("r%d", i/16)))
				for j := range size.pods {
					gpus := 0
					if j < 6 {
						gpus = 1
					}
					pods = append(pods, runs(fmt.Sprintf("p%d-%d", i, j), gpus, nodes[i].Name))
				}
			}
			for i := range 8 {
				members = append(members, waits(fmt.Sprintf("w%d", i), 8, inGang("w")))
			}
			s := newStage(b, nodes, slices.Concat(pods, members), "{}")
			*s.args.MaxMoves = 64
			s.waiting("w", rack, members...)
			s.dryRun = true
			report := cputime.Start(b)
			for b.Loop() {
				s.balance(b)
			}
			report()
		})
	}
}

// TestAPlanForAnotherResource: for a demand that does not ask for the resource of the policy no plan is made, but one
// that a user asks for is answered.
func TestAPlanForAnotherResource(t *testing.T) {
	nodes := []*v1.Node{node("n0", 3, "r0"), node("n1", 3, "r0")}
	pods := []*v1.Pod{runs("a", 2, "n0"), runs("b", 1, "n1"), waits("w", 3)}
	s := newStage(t, nodes, pods, `{"resourceType": "example.com/fpga"}`)
	if plans := s.balance(t); len(plans) != 0 {
		t.Errorf("%d plans are made, want none", len(plans))
	}
	asked := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "asked"}}
	asked.Spec.Goal.Pod = &v1alpha1.ReservationOwnerObject{Namespace: "default", Name: "w", UID: "w"}
	must.Succeed(t, s.scheduler.Client.Create(t.Context(), asked))
	if plans := s.balance(t); len(plans) != 1 || len(plans[0].Status.Moves) != 1 {
		t.Errorf("plans %+v, want one with a move", plans)
	}
}
