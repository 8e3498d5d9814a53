package gang

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func mustPlan(t *testing.T, s *stage, a *gangstate.Attempt, evict ...hold.Holder) *planner.Plan {
	t.Helper()
	result, err := s.ready().Plan(s.ctx, a, evict)
	must.Succeed(t, err)
	return result
}

// fitting scores the nodes on which a pod fits as things stand in the snapshot,
// and returns the best.
func (s *stage) fitting(t *testing.T, pod *v1.Pod) (scores map[string]int64, best string) {
	t.Helper()
	fw := s.scheduler.Profiles[testProfile]
	state := framework.NewCycleState()
	// The cycle of a plan's question: the Gang plugin itself is skipped.
	whatif.MarkSimulated(state)
	ledger.Grant(state, hold.Holder{Profile: testProfile, Group: "default/train"})
	result, status, _ := fw.RunPreFilterPlugins(s.ctx, state, pod)
	if status.Code() == fwk.Error {
		t.Fatal(status)
	}
	infos, err := s.snapshot.List()
	must.Succeed(t, err)
	feasible := slices.DeleteFunc(slices.Clone(infos), func(info fwk.NodeInfo) bool {
		return !status.IsSuccess() || !result.AllNodes() && !result.NodeNames.Has(info.Node().Name) || !fw.RunFilterPlugins(s.ctx, state, pod, info).IsSuccess()
	})
	if len(feasible) == 0 {
		return nil, ""
	}
	if status := fw.RunPreScorePlugins(s.ctx, state, pod, feasible); !status.IsSuccess() {
		t.Fatal(status)
	}
	list, status := fw.RunScorePlugins(s.ctx, state, pod, feasible)
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	scores = map[string]int64{}
	for _, score := range list {
		if scores[score.Name] = score.TotalScore; best == "" || score.TotalScore > scores[best] {
			best = score.Name
		}
	}
	return scores, best
}

// assume puts a pod on a node of the snapshot until the test ends it.
func (s *stage) assume(t *testing.T, pod *v1.Pod, node string) {
	t.Helper()
	assumed := pod.DeepCopy()
	assumed.Spec.NodeName = node
	must.Succeed(t, s.snapshot.AssumePod(idle.PodInfo(t, assumed)))
}

// wishes are what a random member may require, besides resources. All members of a
// gang require the same, or every other does.
var wishes = []func(pod *st.PodWrapper){
	func(*st.PodWrapper) {},
	func(pod *st.PodWrapper) {
		pod.PodAntiAffinityIn("app", v1.LabelHostname, []string{"train"}, st.PodAntiAffinityWithRequiredReq)
	},
	func(pod *st.PodWrapper) {
		pod.PodAntiAffinityIn("app", v1.LabelTopologyZone, []string{"other"}, st.PodAntiAffinityWithRequiredReq)
	},
	func(pod *st.PodWrapper) {
		pod.PodAffinityIn("app", v1.LabelTopologyZone, []string{"train"}, st.PodAffinityWithRequiredReq)
	},
	func(pod *st.PodWrapper) {
		pod.PodAffinityIn("app", v1.LabelHostname, []string{"train"}, st.PodAffinityWithPreferredReq)
	},
	func(pod *st.PodWrapper) {
		pod.SpreadConstraint(1, v1.LabelTopologyZone, v1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	},
	func(pod *st.PodWrapper) {
		pod.SpreadConstraint(2, v1.LabelHostname, v1.DoNotSchedule, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	},
	func(pod *st.PodWrapper) { pod.HostPort(8080) },
	func(pod *st.PodWrapper) { pod.NodeSelector(map[string]string{v1.LabelTopologyZone: "z1"}) },
}

// randomStage returns a few nodes, with other pods on them, and a gang.
func randomStage(t *testing.T, seed uint64) (*stage, []*v1.Pod) {
	rng := rand.New(rand.NewPCG(seed, 21))
	nodes := makeNodes(4+rng.IntN(5), 2)
	var others []*v1.Pod
	for i := range rng.IntN(5) {
		other := st.MakePod().Namespace("default").Name(fmt.Sprint("other-", i)).UID(fmt.Sprint("other-", i)).Label("app", []string{"other", "train"}[rng.IntN(2)]).
			Node(nodes[rng.IntN(len(nodes))].Name).Req(map[v1.ResourceName]string{gpu: fmt.Sprint(1 + rng.IntN(6))})
		if rng.IntN(3) == 0 {
			other.PodAntiAffinityIn("app", v1.LabelHostname, []string{"train"}, st.PodAntiAffinityWithRequiredReq)
		}
		others = append(others, other.Obj())
	}
	first, second := wishes[rng.IntN(len(wishes))], wishes[rng.IntN(len(wishes))]
	gpus := 1 + rng.IntN(4)
	members := makeMembers("train", 2+rng.IntN(8), 1, func(i int, pod *st.PodWrapper) {
		if first(pod); i%2 == 1 {
			second(pod)
			pod.Req(map[v1.ResourceName]string{gpu: fmt.Sprint(gpus)})
		}
	})
	return newStage(t, nodes, others...), members
}

// TestPlansAreAcceptedOneByOne: what a plan places, kube-scheduler's own filters
// accept, pod by pod, each with those before it in their places.
func TestPlansAreAcceptedOneByOne(t *testing.T) {
	planned := 0
	for seed := range uint64(40) {
		s, members := randomStage(t, seed)
		result := mustPlan(t, s, attemptOf(members, gangspec.Spec{}))
		if !result.Complete {
			continue
		}
		planned++
		if len(result.Order) != len(members) || len(result.Nodes) != len(members) {
			t.Fatalf("seed %d: %d placed in order, %d in all, want %d", seed, len(result.Order), len(result.Nodes), len(members))
		}
		for _, uid := range result.Order {
			pod := members[slices.IndexFunc(members, func(pod *v1.Pod) bool { return pod.UID == uid })]
			scores, _ := s.fitting(t, pod)
			if _, fits := scores[result.Nodes[uid]]; !fits {
				t.Fatalf("seed %d: %s is planned for %s, and fits on %v only", seed, pod.Name, result.Nodes[uid], scores)
			}
			s.assume(t, pod, result.Nodes[uid])
		}
	}
	if planned < 12 {
		t.Errorf("only %d plans were complete", planned)
	}
}

// TestPlansFindWhatOneByOneFinds: where members that come one by one all find a
// node, so does the plan.
func TestPlansFindWhatOneByOneFinds(t *testing.T) {
	for seed := range uint64(40) {
		s, members := randomStage(t, seed)
		result := mustPlan(t, s, attemptOf(members, gangspec.Spec{}))
		alone := map[types.UID]string{}
		for _, pod := range members {
			if _, best := s.fitting(t, pod); best != "" {
				alone[pod.UID] = best
				s.assume(t, pod, best)
			}
		}
		if len(alone) == len(members) && !result.Complete {
			t.Errorf("seed %d: one by one they are placed on %v; the plan says: %v", seed, alone, result.Why)
		}
	}
}

// TestPlansScoreAsOneByOne: members that do not compete go to nodes that
// kube-scheduler would have chosen, pod by pod.
func TestPlansScoreAsOneByOne(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 23))
		nodes := makeNodes(4+rng.IntN(5), 2)
		s := newStage(t, nodes, fill(nodes[:rng.IntN(len(nodes))], 1+rng.IntN(7))...)
		members := makeMembers("train", 2+rng.IntN(8), 1+rng.IntN(2), nil)
		result := mustPlan(t, s, attemptOf(members, gangspec.Spec{}))
		for _, uid := range result.Order {
			pod := members[slices.IndexFunc(members, func(pod *v1.Pod) bool { return pod.UID == uid })]
			if scores, best := s.fitting(t, pod); scores[result.Nodes[uid]] < scores[best] {
				t.Fatalf("seed %d: %s is planned for %s; scores are %v", seed, pod.Name, result.Nodes[uid], scores)
			}
			s.assume(t, pod, result.Nodes[uid])
		}
	}
}

// TestPlansLeaveNoTrace: a plan changes nothing of what the scheduler sees.
func TestPlansLeaveNoTrace(t *testing.T) {
	for seed := range uint64(20) {
		s, members := randomStage(t, seed)
		before := s.counts(t)
		mustPlan(t, s, attemptOf(members, gangspec.Spec{}))
		if diff := cmp.Diff(before, s.counts(t)); diff != "" {
			t.Errorf("seed %d: pods by node and list (-before +after):\n%s", seed, diff)
		}
	}
}

// counts returns how many pods the snapshot has, by node and by its lists.
func (s *stage) counts(t *testing.T) map[string][]int {
	t.Helper()
	counts := map[string][]int{}
	for _, list := range []func() ([]fwk.NodeInfo, error){s.snapshot.List, s.snapshot.HavePodsWithAffinityList, s.snapshot.HavePodsWithRequiredAntiAffinityList} {
		infos, err := list()
		must.Succeed(t, err)
		for _, info := range infos {
			counts[info.Node().Name] = append(counts[info.Node().Name], len(info.GetPods()), len(info.GetPodsWithAffinity()), int(info.GetRequested().GetMilliCPU()))
		}
	}
	return counts
}

// TestPlansAndHolds: what is held for others is taken; what is held for the gang
// itself, or for gangs that make way for it, is not.
func TestPlansAndHolds(t *testing.T) {
	held := func(uid, holder, node string, gpus int64, ports ...hold.Port) hold.Hold {
		return hold.Hold{For: types.UID(uid), Holder: hold.Holder{Profile: testProfile, Group: holder}, Node: node, Reason: hold.Plan, Request: resource.Vector{gpu: gpus}, Ports: ports}
	}
	const other, own, n0, n1 = "default/other", "default/train", "node-0000", "node-0001"
	for sentence, c := range map[string]struct {
		holds   []hold.Hold
		members int
		change  func(int, *st.PodWrapper)
		evict   []hold.Holder
		want    map[string]int // members by node; nil where there is no plan
		why     string
	}{
		"nothing is held":                                      {members: 16, want: map[string]int{n0: 8, n1: 8}},
		"others hold a part":                                   {members: 10, holds: []hold.Hold{held("a", other, n0, 6)}, want: map[string]int{n0: 2, n1: 8}},
		"others hold too much":                                 {members: 11, holds: []hold.Hold{held("a", other, n0, 6)}, why: "10 of 11 members fit; short 1 nvidia.com/gpu"},
		"it says so where all is held":                         {members: 1, holds: []hold.Hold{held("a", other, n0, 8), held("b", other, n1, 8)}, why: "2 " + ledger.ErrReasonHeld},
		"one's own holds do not count":                         {members: 16, holds: []hold.Hold{held("a", own, n0, 6)}, want: map[string]int{n0: 8, n1: 8}},
		"those of the group of its name in another profile do": {members: 16, holds: []hold.Hold{{For: "a", Holder: hold.Holder{Profile: "another", Group: own}, Node: n0, Reason: hold.Plan, Request: resource.Vector{gpu: 6}}}, why: "10 of 16 members fit"},
		"nor those of a group that makes way":                  {members: 16, holds: []hold.Hold{held("a", other, n0, 6)}, evict: []hold.Holder{{Profile: testProfile, Group: other}}, want: map[string]int{n0: 8, n1: 8}},
		"a second group still does":                            {members: 16, holds: []hold.Hold{held("a", other, n0, 6), held("b", "default/third", n1, 1)}, evict: []hold.Holder{{Profile: testProfile, Group: other}}, why: "15 of 16 members fit"},
		"a host port that is held is taken":                    {members: 1, change: constraints["one host port"], holds: []hold.Hold{held("a", other, n0, 1, hold.Port{Protocol: "TCP", Number: 8080})}, want: map[string]int{n1: 1}},
		"also for members that care about each other":          {members: 2, change: constraints["each on a node of its own"], holds: []hold.Hold{held("a", other, n0, 8)}, why: "1 of 2 members fit"},
		"a hold on a node that is gone is in nobody's way":     {members: 16, holds: []hold.Hold{held("a", other, "gone", 8)}, want: map[string]int{n0: 8, n1: 8}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, makeNodes(2, 2))
			put(s.holds, c.holds...)
			result := mustPlan(t, s, attemptOf(makeMembers("train", c.members, 1, c.change), gangspec.Spec{}), c.evict...)
			var got map[string]int
			if result.Complete {
				got = map[string]int{}
				for _, node := range result.Nodes {
					got[node]++
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("members by node (-want +got):\n%s", diff)
			}
			if why := result.Why[gangspec.Key{Namespace: "default", Name: "train"}]; !strings.Contains(why, c.why) || (c.why == "") != (why == "") {
				t.Errorf("explanation %q, want %q in it", why, c.why)
			}
		})
	}
}

// TestPlansFindLostPlaces: a plan reports whether a member can no longer have the node that an earlier plan gave it.
func TestPlansFindLostPlaces(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*v1.Node)
		want   bool
	}{
		"the node is as it was":                {change: func(*v1.Node) {}},
		"it is gone":                           {change: func(n *v1.Node) { n.Name = "another" }, want: true},
		"it has less":                          {change: func(n *v1.Node) { n.Status.Allocatable[gpu] = apiresource.MustParse("1") }, want: true},
		"it is cordoned":                       {change: func(n *v1.Node) { n.Spec.Unschedulable = true }, want: true},
		"it has a taint":                       {change: tainted("maintenance", v1.TaintEffectNoSchedule), want: true},
		"it has a taint that members tolerate": {change: tainted("gangs", v1.TaintEffectNoSchedule)},
		"it has a taint that makes it less attractive": {change: tainted("maintenance", v1.TaintEffectPreferNoSchedule)},
		"it is in another rack":                        {change: func(n *v1.Node) { n.Labels[rack] = "r1" }, want: true},
		"it is in no rack":                             {change: func(n *v1.Node) { delete(n.Labels, rack) }, want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			nodes := makeNodes(4, 2)
			a := placed(needs("train", 3, gangspec.Spec{RequiredTopology: rack}, func(_ int, pod *st.PodWrapper) {
				pod.Req(map[v1.ResourceName]string{gpu: "2"}).Toleration("gangs")
			}), nodes[0].Name, nodes[1].Name)
			for i := range a.Gangs[0].Placed {
				a.Gangs[0].Placed[i].InPlan = true
			}
			c.change(nodes[1])
			if result := mustPlan(t, newStage(t, nodes), a); result.LostPlace != c.want {
				t.Errorf("lost place: %t, want %t", result.LostPlace, c.want)
			}
		})
	}
}

// tainted returns a function that gives a node one more taint.
func tainted(key string, effect v1.TaintEffect) func(*v1.Node) {
	return func(n *v1.Node) { n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: key, Effect: effect}) }
}

// TestHopelessPlans: a plan that fails reports whether it would fail on an empty cluster too.
func TestHopelessPlans(t *testing.T) {
	all := []hold.Hold{
		{For: "a", Holder: hold.Holder{Profile: testProfile, Group: "default/other"}, Node: "node-0000", Reason: hold.Plan, Request: resource.Vector{gpu: 8}},
		{For: "b", Holder: hold.Holder{Profile: testProfile, Group: "default/other"}, Node: "node-0001", Reason: hold.Plan, Request: resource.Vector{gpu: 8}},
	}
	nowhere := func(_ int, p *st.PodWrapper) { p.NodeSelector(map[string]string{"no": "such"}) }
	named := func(_ int, p *st.PodWrapper) {
		p.NodeAffinityIn(metav1.ObjectNameField, []string{"gone"}, st.NodeSelectorTypeMatchFields)
	}
	cordoned := func(n *v1.Node) {
		n.Spec.Unschedulable = true
		tainted(v1.TaintNodeUnschedulable, v1.TaintEffectNoSchedule)(n)
	}
	apart := func(_ int, p *st.PodWrapper) {
		p.PodAntiAffinityIn("app", v1.LabelHostname, []string{"train"}, st.PodAntiAffinityWithPreferredReq)
	}
	spread := func(_ int, p *st.PodWrapper) {
		p.SpreadConstraint(1, v1.LabelHostname, v1.ScheduleAnyway, st.MakeLabelSelector().Label("app", "train").Obj(), nil, nil, nil, nil)
	}
	near := func(_ int, p *st.PodWrapper) {
		p.PodAffinityIn("app", v1.LabelHostname, []string{"other"}, st.PodAffinityWithRequiredReq)
	}
	tolerant := func(_ int, p *st.PodWrapper) { p.Toleration("team") }
	for sentence, c := range map[string]struct {
		members int
		spec    gangspec.Spec
		change  func(int, *st.PodWrapper)
		nodes   func(*v1.Node)
		holds   []hold.Hold
		want    bool
	}{
		"all is taken":                                  {members: 16, holds: all},
		"there never is so much":                        {members: 17, want: true},
		"no node is good for it":                        {members: 1, change: nowhere, want: true},
		"nor would one be that is full":                 {members: 1, change: nowhere, holds: all, want: true},
		"the node that it names is not there":           {members: 1, change: named, want: true},
		"no rack has so much":                           {members: 9, spec: gangspec.Spec{RequiredTopology: rack}, want: true},
		"a rack has, but it is taken":                   {members: 8, spec: gangspec.Spec{RequiredTopology: rack}, holds: all},
		"members that care about each other":            {members: 3, change: constraints["each on a node of its own"], want: true},
		"there are nodes for these, but they are taken": {members: 2, change: constraints["each on a node of its own"], holds: all},
		"members that had rather be apart":              {members: 17, change: apart, want: true},
		"there is enough for these, but it is taken":    {members: 16, change: apart, holds: all},
		"members that should be spread":                 {members: 17, change: spread, want: true},
		"no other members are near, but may be":         {members: 2, change: near},
		"no node has the label of the topology":         {members: 1, spec: gangspec.Spec{RequiredTopology: "no-such"}, want: true},
		"its claims are not there yet":                  {members: 1, change: func(_ int, p *st.PodWrapper) { p.PVC("none") }},
		"so many claims would not help":                 {members: 17, change: func(_ int, p *st.PodWrapper) { p.PVC("none") }, want: true},
		"nodes that are not ready will be":              {members: 1, nodes: tainted(v1.TaintNodeNotReady, v1.TaintEffectNoSchedule)},
		"nodes that are cordoned may come back":         {members: 1, nodes: cordoned},
		"nodes are not for it":                          {members: 1, nodes: tainted("team", v1.TaintEffectNoSchedule), want: true},
		"also while they are not ready": {members: 1, nodes: func(n *v1.Node) {
			tainted(v1.TaintNodeNotReady, v1.TaintEffectNoSchedule)(n)
			tainted("team", v1.TaintEffectNoExecute)(n)
		}, want: true},
		"they are for it, and not ready": {members: 1, change: tolerant, nodes: func(n *v1.Node) {
			tainted("team", v1.TaintEffectNoSchedule)(n)
			tainted(v1.TaintNodeNotReady, v1.TaintEffectNoSchedule)(n)
		}},
		"they had rather it were not there": {members: 17, nodes: tainted("team", v1.TaintEffectPreferNoSchedule), want: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			nodes := makeNodes(2, 2)
			if c.nodes != nil {
				for _, node := range nodes {
					c.nodes(node)
				}
			}
			s := newStage(t, nodes)
			put(s.holds, c.holds...)
			result := mustPlan(t, s, attemptOf(makeMembers("train", c.members, 1, c.change), c.spec))
			if result.Complete || result.Hopeless != c.want {
				t.Errorf("complete: %v, hopeless: %v; want a failure, and %v: %v", result.Complete, result.Hopeless, c.want, result.Why)
			}
		})
	}
}

// TestShapesOfPlans: attempts that differ in nothing that decides whether they fit have one
// key, and no key where something else may have decided.
func TestShapesOfPlans(t *testing.T) {
	labelled := func(key, value string) func(int, *st.PodWrapper) {
		return func(_ int, p *st.PodWrapper) { p.Label(key, value) }
	}
	nodes := makeNodes(2, 2)
	s := newStage(t, nodes, fill(nodes, 2)...)
	shape := func(members int, spec gangspec.Spec, change func(int, *st.PodWrapper)) turns.Shape {
		return mustPlan(t, s, attemptOf(makeMembers("train", members, 1, change), spec)).Shape
	}
	plain := shape(5, gangspec.Spec{}, nil)
	if plain.Key == 0 || plain.Members != 5 || plain.Request[gpu] != 1 {
		t.Fatalf("shape of 5 members that do not fit: %+v", plain)
	}
	for sentence, c := range map[string]struct {
		shape turns.Shape
		same  bool
	}{
		"more of them":                   {shape(6, gangspec.Spec{}, nil), true},
		"of another job":                 {shape(5, gangspec.Spec{}, labelled("job-name", "other")), true},
		"of another priority":            {shape(5, gangspec.Spec{}, func(_ int, p *st.PodWrapper) { p.Priority(7) }), true},
		"of another queue":               {shape(5, gangspec.Spec{}, labelled(v1alpha1.QueueLabel, "other")), false},
		"on other nodes":                 {shape(5, gangspec.Spec{}, func(_ int, p *st.PodWrapper) { p.NodeSelector(map[string]string{"a": "b"}) }), false},
		"with a toleration":              {shape(5, gangspec.Spec{}, func(_ int, p *st.PodWrapper) { p.Toleration("a") }), false},
		"that never preempt":             {shape(5, gangspec.Spec{}, func(_ int, p *st.PodWrapper) { p.PreemptionPolicy(v1.PreemptNever) }), false},
		"in one rack":                    {shape(5, gangspec.Spec{RequiredTopology: rack}, nil), false},
		"with a host port":               {shape(5, gangspec.Spec{}, constraints["one host port"]), false},
		"of several kinds":               {shape(5, gangspec.Spec{}, func(i int, p *st.PodWrapper) { p.Req(map[v1.ResourceName]string{gpu: strconv.Itoa(1 + i%2)}) }), false},
		"that care about each other":     {shape(5, gangspec.Spec{}, constraints["each on a node of its own"]), false},
		"that may not be near what runs": {shape(5, gangspec.Spec{}, labelled("apart", "yes")), true},
	} {
		if got := c.shape.Key == plain.Key; got != c.same {
			t.Errorf("%s: the same key: %t", sentence, got)
		}
	}
	if coupled := shape(5, gangspec.Spec{}, constraints["each on a node of its own"]); coupled.Key != 0 {
		t.Errorf("members that care about each other have the shape %+v", coupled)
	}
	kinds := func(i int, p *st.PodWrapper) { p.Req(map[v1.ResourceName]string{gpu: strconv.Itoa(1 + i%2)}) }
	if one, other := shape(5, gangspec.Spec{}, kinds), shape(5, gangspec.Spec{}, kinds); one.Key == 0 || one.Key != other.Key {
		t.Errorf("two that are the same in several kinds: %+v, %+v", one, other)
	}
	inOneRack := func(together bool) turns.Shape {
		spec := gangspec.Spec{RequiredTopology: rack, Layout: gangspec.Layout{Shared: together}}
		a := attemptOf(makeMembers("one", 3, 1, nil), spec)
		a.Gangs = append(a.Gangs, attemptOf(makeMembers("other", 3, 1, nil), spec).Gangs...)
		return mustPlan(t, s, a).Shape
	}
	if each, together := inOneRack(false), inOneRack(true); each.Key == 0 || together.Key == 0 || each.Key == together.Key {
		t.Errorf("two gangs, each in one rack: %+v; both in the same: %+v", each, together)
	}
	apart := st.MakePod().Namespace("other").Name("apart").UID("apart").Node(nodes[0].Name).Obj()
	apart.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		TopologyKey: v1.LabelHostname, NamespaceSelector: &metav1.LabelSelector{}, LabelSelector: st.MakeLabelSelector().Label("apart", "yes").Obj(),
	}}}}
	s = newStage(t, nodes, append(fill(nodes, 2), apart)...)
	if got := shape(5, gangspec.Spec{}, labelled("apart", "yes")); got.Key != 0 {
		t.Errorf("members that a pod does not want near it have the shape %+v", got)
	}
}
