package gang

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

func plainPod(name string, gpus string) *v1.Pod {
	return sample.Pod(name).Req(map[v1.ResourceName]string{gpu: gpus}).Obj()
}

// open admits members that the plugin sees from now on.
func (s *stage) open() {
	s.gangs.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.Open(now) })
}

// see passes pods to the plugin, as the API server would.
func (s *stage) see(pods ...*v1.Pod) {
	for _, pod := range pods {
		s.podSeen(s.ctx, pod)
	}
}

// podSeen passes a pod to the gangs of the profile, and gives its group its turn.
func (s *stage) podSeen(ctx context.Context, pod *v1.Pod) {
	s.gangs.UpdateGangs(ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.ObservePod(pod, now) })
	if pod.Spec.NodeName != "" {
		s.holds.PodBound(pod.UID, pod.Spec.NodeName)
	}
	if at, member := s.registry.Progress(pod); member {
		s.registry.Lead(ctx, s.gangs.Holder(at.Group))
	}
}

// podGone removes a pod from the gangs of the profile.
func (s *stage) podGone(ctx context.Context, pod *v1.Pod) {
	s.gangs.UpdateGangs(ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.PodEnded(pod.UID, now) })
	s.holds.DropNomination(pod.UID)
}

// refusals filters a pod on every node, as far as gangs and what is held matter, and returns the
// reasons by node.
func (s *stage) refusals(t *testing.T, state fwk.CycleState, pod *v1.Pod) map[string]string {
	t.Helper()
	infos, err := s.snapshot.List()
	must.Succeed(t, err)
	reasons := map[string]string{}
	for _, info := range infos {
		status := s.Filter(s.ctx, state, pod, info)
		if status.IsSuccess() {
			status = heldCapacity{s.holds}.Filter(s.ctx, state, pod, info)
		}
		if !status.IsSuccess() {
			reasons[info.Node().Name] = status.Message()
		}
	}
	return reasons
}

func heldOn(node string, holder hold.Holder, gpus int64) hold.Hold {
	return hold.Hold{For: "held", Holder: holder, Node: node, Reason: hold.Plan, Request: resource.Vector{gpu: gpus}}
}

func put(h *ledger.Shared, list ...hold.Hold) {
	for _, one := range list {
		h.FollowPlan(one.Holder, nil, []hold.Hold{one})
	}
}

func TestPodsOutsideGangs(t *testing.T) {
	s := newStage(t, makeNodes(2, 2))
	s.open()
	pod := plainPod("plain", "1")
	if status := s.PreEnqueue(s.ctx, pod); !status.IsSuccess() {
		t.Errorf("the queue does not let it in: %v", status)
	}
	state := framework.NewCycleState()
	if result, status := s.PreFilter(s.ctx, state, pod, nil); !status.IsSkip() || result != nil {
		t.Errorf("nothing is held, and PreFilter answers %v, %v, want Skip", result, status)
	}
	if fragments, status := s.SignPod(s.ctx, pod); fragments != nil || !status.IsSuccess() {
		t.Errorf("SignPod answers %v, %v: batching ends", fragments, status)
	}
	put(s.holds, heldOn("node-0000", hold.Holder{Group: "default/train"}, 8))
	state = framework.NewCycleState()
	if result, status := s.PreFilter(s.ctx, state, pod, nil); !status.IsSkip() || result != nil {
		t.Errorf("PreFilter answers %v, %v, want Skip: what is held is not this plugin's affair", result, status)
	}
	if diff := cmp.Diff(map[string]string{"node-0000": ledger.ErrReasonHeld}, s.refusals(t, state, pod)); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if _, status := s.PostFilter(s.ctx, state, pod, framework.NewDefaultNodeToStatus()); status.Code() != fwk.Unschedulable {
		t.Errorf("PostFilter answers %v: nobody after it may preempt", status)
	}
	status := s.Reserve(s.ctx, state, pod, "node-0001")
	permit, wait := s.Permit(s.ctx, state, pod, "node-0001")
	if !status.IsSuccess() || !permit.IsSuccess() || wait != 0 {
		t.Errorf("it has to wait: %v, %v, %v", status, permit, wait)
	}
	if status := s.Bind(s.ctx, state, pod, "node-0001"); !status.IsSkip() {
		t.Errorf("Bind answers %v, want Skip: another plugin binds", status)
	}
}

// TestImpossibleRequests: a pod that asks for what no pod can have is told so by its own cycle, in a gang or not.
func TestImpossibleRequests(t *testing.T) {
	s := newStage(t, makeNodes(2, 2))
	s.open()
	alone, member := plainPod("plain", "1e30"), plainPod("member", "1e30")
	member.Annotations = map[string]string{v1alpha1.GangNameAnnotation: "train", v1alpha1.MinAvailableAnnotation: "1"}
	s.see(member)
	for _, pod := range []*v1.Pod{alone, member} {
		if status := s.PreEnqueue(s.ctx, pod); !status.IsSuccess() {
			t.Errorf("%s: the queue does not let it in: %v", pod.Name, status)
		}
		_, status := s.PreFilter(s.ctx, framework.NewCycleState(), pod, nil)
		const want = "the pod asks for what no node can have: spec.containers[0].resources.requests[nvidia.com/gpu] is 1e30: want at most 1P"
		if status.Code() != fwk.UnschedulableAndUnresolvable || status.Message() != want {
			t.Errorf("%s: PreFilter answers %v", pod.Name, status)
		}
	}
}

// TestGates checks which members the queue admits.
func TestGates(t *testing.T) {
	members := makeMembers("train", 3, 1, nil)
	for sentence, c := range map[string]struct {
		seen []*v1.Pod
		want []int // of the members
	}{
		"nobody was seen":                           {},
		"a gang that is not complete waits":         {seen: members[:2]},
		"a complete gang sends its leader":          {seen: members, want: []int{0}},
		"a gang that runs does not hold back extra": {seen: []*v1.Pod{sample.Bound(members[0], "n"), sample.Bound(members[1], "n"), members[2]}, want: []int{0, 1, 2}},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, makeNodes(1, 1))
			s.open()
			s.see(c.seen...)
			var got []int
			for i, pod := range members {
				if status := s.PreEnqueue(s.ctx, pod); status.IsSuccess() {
					got = append(got, i)
				} else if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "default/train") {
					t.Errorf("%s waits with %v, want the gang named", pod.Name, status)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("let in (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLeaderAndFollowers: the leader's cycle plans for all members; each is led to
// the node of the plan, and kept off all others.
func TestLeaderAndFollowers(t *testing.T) {
	s := newStage(t, makeNodes(2, 2))
	s.open()
	members := makeMembers("train", 2, 8, nil)
	s.see(members...)
	if _, status := s.PreFilter(s.ctx, framework.NewCycleState(), members[1], nil); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("a member that does not lead comes first, and PreFilter answers %v", status)
	}
	on := map[string]bool{}
	for _, pod := range members {
		state := framework.NewCycleState()
		result, status := s.PreFilter(s.ctx, state, pod, nil)
		if !status.IsSuccess() || result.AllNodes() || len(result.NodeNames) != 1 {
			t.Fatalf("PreFilter of %s answers %v, %v, want its node", pod.Name, result, status)
		}
		node, _ := result.NodeNames.PopAny()
		on[node] = true
		want := map[string]string{"node-0000": ErrReasonPlan, "node-0001": ErrReasonPlan}
		delete(want, node)
		if diff := cmp.Diff(want, s.refusals(t, state, pod)); diff != "" {
			t.Errorf("%s is refused (-want +got):\n%s", pod.Name, diff)
		}
	}
	if len(on) != 2 || s.holds.Count(hold.Plan) != 2 {
		t.Errorf("members on %v, %d holds, want one on each node", on, s.holds.Count(hold.Plan))
	}
	for _, pod := range []*v1.Pod{plainPod("plain", "1"), makeMembers("other", 1, 1, nil)[0]} {
		state := framework.NewCycleState()
		s.see(pod)
		if _, status := s.PreFilter(s.ctx, state, pod, nil); !status.IsSuccess() && !status.IsSkip() {
			t.Fatal(status)
		}
		want := map[string]string{"node-0000": ledger.ErrReasonHeld, "node-0001": ledger.ErrReasonHeld}
		if diff := cmp.Diff(want, s.refusals(t, state, pod)); diff != "" {
			t.Errorf("%s is refused (-want +got):\n%s", pod.Name, diff)
		}
	}
	if _, status := s.SignPod(s.ctx, members[0]); status.IsSuccess() {
		t.Error("members are batched, whatever their plan says")
	}
}

// TestMinimumBelowACeiling: a gang that fits best where its members exceed the ceiling goes where those fit that its
// queue has let in.
func TestMinimumBelowACeiling(t *testing.T) {
	nodes := makeNodes(6, 2)
	nodes[3].Labels["master"] = "here"
	s := newStage(t, nodes)
	s.queue.ceiling = 16
	members := makeMembers("train", 4, 8, func(i int, pod *st.PodWrapper) {
		pod.Annotation(v1alpha1.MinAvailableAnnotation, "3").Annotation(v1alpha1.RequiredTopologyAnnotation, rack)
		if i == 0 {
			pod.Spec.Containers = nil
			pod.Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).NodeSelector(map[string]string{"master": "here"})
		}
	})
	s.open()
	s.see(members...)
	state := framework.NewCycleState()
	s.PreFilter(s.ctx, state, members[0], nil)
	for i, want := range []bool{true, true, true, false} {
		if _, planned := s.holds.Hold(hold.IDOf(members[i].UID)); planned != want {
			t.Errorf("member %d is planned: %t, want %t", i, planned, want)
		}
	}
}

// TestCeilings: a gang of which other members fit than its queue has let in keeps the ceiling. Pods are evicted only
// for those that the queue has let in.
func TestCeilings(t *testing.T) {
	for sentence, c := range map[string]struct {
		ceiling int64
		begun   bool // one runs
		planned int
		evicts  string // for whom pods may be evicted
	}{
		"the others are below it":     {ceiling: 24, planned: 3},
		"they are above it":           {ceiling: 16, evicts: "train-0000 train-0001 train-0002"},
		"there is none":               {planned: 3},
		"a part of the minimum runs":  {ceiling: 8, begun: true, planned: 2},
		"it keeps out what is let in": {ceiling: 7, evicts: "train-0000 train-0001 train-0002"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, makeNodes(3, 1))
			s.queue.ceiling = c.ceiling
			members := makeMembers("train", 4, 8, func(i int, pod *st.PodWrapper) {
				if pod.Annotation(v1alpha1.MinAvailableAnnotation, "3"); i == 0 {
					pod.Req(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).NodeSelector(map[string]string{"no": "node"})
				}
			})
			if c.begun { // its release was interrupted
				members[3] = sample.Bound(members[3], "node-0002")
				members[3].Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
				must.Succeed(t, s.scheduler.Cache.AddPod(klog.FromContext(s.ctx), members[3]))
				s.scheduler.Look(t)
			}
			s.open()
			s.see(members...)
			state := framework.NewCycleState()
			s.PreFilter(s.ctx, state, members[0], nil)
			var evicts []string
			if a := planner.AttemptOf(state); a != nil {
				for _, pod := range a.Pending() {
					evicts = append(evicts, pod.Name)
				}
			}
			if n := s.holds.Count(hold.Plan); n != c.planned || strings.Join(evicts, " ") != c.evicts {
				t.Errorf("%d places held, want %d; pods may be evicted for %v, want %q", n, c.planned, evicts, c.evicts)
			}
		})
	}
}

// TestDomainOfARunningGang: later members go where the other members are.
func TestDomainOfARunningGang(t *testing.T) {
	annotated := func(key string) func(int, *st.PodWrapper) {
		return func(_ int, pod *st.PodWrapper) { pod.Annotation(key, rack) }
	}
	nodes := makeNodes(3, 3)
	delete(nodes[2].Labels, rack)
	outside := func(names ...string) map[string]string {
		reasons := map[string]string{}
		for _, name := range names {
			reasons[name] = ErrReasonDomain
		}
		return reasons
	}
	slices := func(size int) string { return fmt.Sprintf(`[{"topology":%q,"size":%d}]`, rack, size) }
	for sentence, c := range map[string]struct {
		key       string
		value     string // empty for rack
		members   int
		on        []string // nodes of the first of them
		refused   map[string]string
		preferred sets.Set[string]
	}{
		"anywhere without a topology":                         {members: 2, on: []string{"node-0001"}, refused: outside()},
		"in the domain that is required":                      {key: v1alpha1.RequiredTopologyAnnotation, members: 2, on: []string{"node-0001"}, refused: outside("node-0000", "node-0002")},
		"the first that is known counts":                      {key: v1alpha1.RequiredTopologyAnnotation, members: 4, on: []string{"gone", "node-0000", "node-0001"}, refused: outside("node-0001", "node-0002")},
		"in some domain where the others' is not known":       {key: v1alpha1.RequiredTopologyAnnotation, members: 2, on: []string{"gone"}, refused: outside("node-0002")},
		"a gang of one is in some domain, too":                {key: v1alpha1.RequiredTopologyAnnotation, members: 1, refused: outside("node-0002")},
		"rather in the domain that is preferred, if possible": {key: v1alpha1.PreferredTopologyAnnotation, members: 3, on: []string{"node-0001", "node-0002"}, refused: outside(), preferred: sets.New("node-0001")},
		"in the domain of its slice, beside its neighbour": {
			key: v1alpha1.TopologySlicesAnnotation, value: slices(2), members: 4, on: []string{"node-0000", "node-0000", "node-0001"},
			refused: outside("node-0000", "node-0002"), preferred: sets.New("node-0001"),
		},
		"in any domain where its slice is new": {
			key: v1alpha1.TopologySlicesAnnotation, value: slices(1), members: 2, on: []string{"node-0000"}, refused: outside("node-0002"), preferred: sets.New("node-0000", "node-0001"),
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, nodes)
			s.open()
			var change func(int, *st.PodWrapper)
			if c.key != "" {
				change = annotated(c.key)
				if c.value != "" {
					change = func(_ int, pod *st.PodWrapper) { pod.Annotation(c.key, c.value) }
				}
			}
			members := makeMembers("train", c.members, 1, change)
			for i, node := range c.on {
				members[i] = sample.Bound(members[i], node)
			}
			s.see(members...)
			pod, state := members[len(members)-1], framework.NewCycleState()
			if _, status := s.PreFilter(s.ctx, state, pod, nil); !status.IsSuccess() {
				t.Fatal(status)
			}
			if diff := cmp.Diff(c.refused, s.refusals(t, state, pod)); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
			preferred := sets.New[string]()
			infos, err := s.snapshot.List()
			must.Succeed(t, err)
			if status := s.PreScore(s.ctx, state, pod, infos); status.IsSkip() != (c.preferred.Len() == 0) {
				t.Errorf("PreScore answers %v", status)
			}
			for _, info := range infos {
				if score, status := s.Score(s.ctx, state, pod, info); !status.IsSuccess() {
					t.Error(status)
				} else if score > 0 {
					preferred.Insert(info.Node().Name)
				}
			}
			if !preferred.Equal(c.preferred) {
				t.Errorf("preferred %v, want %v", preferred, c.preferred)
			}
		})
	}
}
