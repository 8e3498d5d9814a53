package heldcapacity

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/pkg/framework/cacheevents"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

const (
	testProfile = "plain-scheduler"
	gpu         = sample.GPU
)

// stage is the plugin inside a real scheduler without gangs: all default plugins, the real cache, snapshot and queue.
// Nothing runs; the API server is a fake.
type stage struct {
	*HeldCapacity
	ctx       context.Context
	scheduler *idle.Scheduler
	fw        framework.Framework
	snapshot  *cache.Snapshot
	events    *cacheevents.Events
	clock     *testingclock.FakeClock
}

// newStage returns a stage with so many nodes of 8 GPUs, and an API server with these objects.
func newStage(tb testing.TB, nodes int, objects ...runtime.Object) *stage {
	tb.Helper()
	s := &stage{events: cacheevents.New(), clock: testingclock.NewFakeClock(time.Now())}
	plugins := extensionpoints.New()
	capture := func(_ context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		s.HeldCapacity = newPlugin(ledger.New(), s.events, plugins, handle.(framework.Framework), s.clock)
		return s.HeldCapacity, nil
	}
	knows := plugins.Watch(func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return knowing{}, nil })
	s.scheduler = idle.New(tb, idle.Options{Name: testProfile, Plugins: frameworkruntime.Registry{Name: capture, knowing{}.Name(): knows}, Objects: objects})
	s.ctx, s.fw, s.snapshot = s.scheduler.Context, s.scheduler.Framework, s.scheduler.Snapshot
	for i := range nodes {
		s.scheduler.Cache.AddNode(klog.FromContext(s.ctx), sample.Node(nodeName(i), 8).Obj())
	}
	s.scheduler.Look(tb)
	return s
}

// knowing is a plugin that knows what is held for pods with an annotation.
type knowing struct{}

func (knowing) Name() string { return "Knowing" }

func (knowing) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) { return nil, nil }

func (knowing) Filter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status { return nil }

func (knowing) Grants(pod *v1.Pod) []hold.Holder {
	if group := pod.Annotations["group"]; group != "" {
		return []hold.Holder{{Group: group}}
	}
	return nil
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

func makePod(name string) *v1.Pod {
	return sample.Pod(name).SchedulerName(testProfile).Req(sample.GPUs(1)).Obj()
}

var others = hold.Holder{Profile: "lockstep-scheduler", Group: "default/train"}

// hold holds all of a node for a pod of a holder.
func (s *stage) hold(pod types.UID, holder hold.Holder, node string) {
	s.holds.FollowPlan(holder, nil, []hold.Hold{{For: pod, Node: node, Request: resource.Vector{gpu: 8}}})
}

// schedule runs a cycle of a pod as far as the choice of its node. It returns why there is none.
func (s *stage) schedule(pod *framework.QueuedPodInfo) error {
	s.events.HandleCycleStart(nil)
	_, err := s.scheduler.SchedulePod(s.ctx, s.fw, framework.NewCycleState(), pod)
	if err != nil {
		s.events.HandleFailedCycle(s.ctx, pod.Pod, err)
	}
	return err
}

// queued returns a pod as the queue has it.
func queued(t *testing.T, pod *v1.Pod) *framework.QueuedPodInfo {
	t.Helper()
	return &framework.QueuedPodInfo{PodInfo: idle.PodInfo(t, pod)}
}

// TestFilter: a pod is kept out of what is held, except what is held for it, or what it has been granted instead.
func TestFilter(t *testing.T) {
	pod := makePod("mine")
	single := hold.Holder{Profile: testProfile, Group: hold.SinglePod(pod.UID)}
	gang := hold.Holder{Profile: testProfile, Group: "default/train"}
	for sentence, c := range map[string]struct {
		by      hold.Holder
		none    bool
		granted []hold.Holder
		known   string // the holder that a plugin knows
		want    string
	}{
		"nothing is held": {none: true},
		"a plugin knows that it is held for the pod": {by: hold.Holder{Group: "team"}, known: "team"},
		"also for one of a gang":                     {by: hold.Holder{Group: "team"}, known: "team", granted: []hold.Holder{gang}},
		"beside what its gang has":                   {by: gang, known: "team", granted: []hold.Holder{gang}},
		"a plugin knows of something else":           {by: others, known: "team", want: ledger.ErrReasonHeld},
		"others hold a node":                         {by: others, want: ledger.ErrReasonHeld},
		"it is held for the pod itself":              {by: single},
		"for a pod of its UID in another profile":    {by: hold.Holder{Profile: "another", Group: single.Group}, want: ledger.ErrReasonHeld},
		"its gang has it":                            {by: gang, granted: []hold.Holder{gang}},
		"its gang and another may be granted":        {by: others, granted: []hold.Holder{gang, others}},
		"others hold it, whatever its gang has":      {by: others, granted: []hold.Holder{gang}, want: ledger.ErrReasonHeld},
		"what is granted is instead of its own":      {by: single, granted: []hold.Holder{gang}, want: ledger.ErrReasonHeld},
		"a gang of its name in another profile does": {by: hold.Holder{Profile: "another", Group: gang.Group}, granted: []hold.Holder{gang}, want: ledger.ErrReasonHeld},
	} {
		t.Run(sentence, func(t *testing.T) {
			s, pod := newStage(t, 2), pod.DeepCopy()
			pod.Annotations = map[string]string{"group": c.known}
			if !c.none {
				s.hold("some", c.by, nodeName(0))
			}
			state := framework.NewCycleState()
			if c.granted != nil {
				ledger.Grant(state, c.granted...)
			}
			result, status := s.PreFilter(s.ctx, state, pod, nil)
			if status.IsSkip() != c.none || !c.none && !status.IsSuccess() || !result.AllNodes() {
				t.Errorf("PreFilter answers %v, %v", result, status)
			}
			for i, want := range []string{c.want, ""} {
				info, err := s.snapshot.Get(nodeName(i))
				must.Succeed(t, err)
				if status := s.Filter(s.ctx, state.Clone(), pod, info); status.Message() != want || want != "" && status.Code() != fwk.Unschedulable {
					t.Errorf("node %d: %v, want %q", i, status, want)
				}
			}
		})
	}
}

func TestBatchingGoesOn(t *testing.T) {
	s := newStage(t, 1)
	s.hold("some", others, nodeName(0))
	if fragments, status := s.SignPod(s.ctx, makePod("plain")); fragments != nil || !status.IsSuccess() {
		t.Errorf("SignPod answers %v, %v: batching ends", fragments, status)
	}
}

// TestLookedAtAgain: a pod that was refused for what is held is tried again when something ends on a node that
// refused it, or nodes change.
func TestLookedAtAgain(t *testing.T) {
	runs := st.MakePod().Name("runs").UID("runs").Node(nodeName(0)).Obj()
	node := func(cpu string) *v1.Node {
		return st.MakeNode().Name(nodeName(1)).Capacity(map[v1.ResourceName]string{v1.ResourceCPU: cpu}).Obj()
	}
	changed := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}
	claimed := fwk.ClusterEvent{Resource: fwk.ResourceClaim, ActionType: fwk.Update}
	listed := fwk.ClusterEvent{Resource: fwk.ResourceSlice, ActionType: fwk.Add}
	provisioned := fwk.ClusterEvent{Resource: fwk.PersistentVolumeClaim, ActionType: fwk.Update}
	for sentence, c := range map[string]struct {
		happens func(s *stage)
		pod     *v1.Pod
		want    bool
	}{
		"nothing happens":                          {func(*stage) {}, nil, false},
		"something ends on a node that refused it": {func(s *stage) { s.holds.ReportFreed(nodeName(0)) }, nil, true},
		"the hold itself ends":                     {func(s *stage) { s.holds.Release("a") }, nil, true},
		"something ends elsewhere":                 {func(s *stage) { s.holds.ReportFreed("elsewhere") }, nil, false},
		"a pod ends there":                         {func(s *stage) { s.events.HandleEvent(framework.EventAssignedPodDelete, runs, nil) }, nil, true},
		"a pod comes there":                        {func(s *stage) { s.events.HandleEvent(framework.EventAssignedPodAdd, nil, runs) }, nil, false},
		"a node gets more":                         {func(s *stage) { s.events.HandleEvent(changed, node("1"), node("2")) }, nil, true},
		"devices of a claim are free": {func(s *stage) {
			s.events.HandleEvent(claimed, dra.Held(dra.Claim("c", 1), nodeName(0), 0, "user"), dra.Claim("c", 1))
		}, nil, true},
		"a claim is created":                          {func(s *stage) { s.events.HandleEvent(claimed, nil, dra.Claim("c", 1)) }, nil, false},
		"a volume is there":                           {func(s *stage) { s.events.HandleEvent(provisioned, nil, &v1.PersistentVolumeClaim{}) }, nil, false},
		"there are more devices":                      {func(s *stage) { s.events.HandleEvent(listed, nil, dra.Slice(nodeName(0), 2)) }, nil, true},
		"a node is as it was":                         {func(s *stage) { s.events.HandleEvent(changed, node("1"), node("1")) }, nil, false},
		"it was refused for something else, and ends": {func(s *stage) { s.holds.Release("a", "b") }, st.MakePod().Namespace("default").Name("p").UID("p").SchedulerName(testProfile).NodeSelector(map[string]string{"no": "node"}).Obj(), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, 2)
			s.hold("a", others, nodeName(0))
			s.hold("b", others, nodeName(1))
			if c.pod == nil {
				c.pod = makePod("p")
			}
			if err := s.schedule(queued(t, c.pod)); err == nil {
				t.Fatal("it has a node")
			}
			c.happens(s)
			again := s.blocked.takeRetries()
			if got := len(again) == 1 && again[0] == c.pod; got != c.want {
				t.Errorf("%v are looked at again, want the pod: %t", again, c.want)
			}
		})
	}
}

// TestEndsDuringTheCycle: the snapshot may not have what ends while the cycle runs, and there will be no other event
// for it.
func TestEndsDuringTheCycle(t *testing.T) {
	grown := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}
	runs := func(node string) *v1.Pod { return st.MakePod().Name("runs").UID("runs").Node(node).Obj() }
	for sentence, c := range map[string]struct {
		happens func(s *stage)
		want    bool
	}{
		"nothing":                {func(*stage) {}, false},
		"the hold":               {func(s *stage) { s.holds.Release("a") }, true},
		"something there":        {func(s *stage) { s.holds.ReportFreed(nodeName(0)) }, true},
		"something elsewhere":    {func(s *stage) { s.holds.ReportFreed("elsewhere") }, false},
		"something somewhere":    {func(s *stage) { s.holds.ReportFreed("") }, true},
		"a pod that runs there":  {func(s *stage) { s.events.HandleEvent(framework.EventAssignedPodDelete, runs(nodeName(0)), nil) }, true},
		"a pod elsewhere":        {func(s *stage) { s.events.HandleEvent(framework.EventAssignedPodDelete, runs("elsewhere"), nil) }, false},
		"the shortage of a node": {func(s *stage) { s.events.HandleEvent(grown, nil, nil) }, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, 1)
			pod := queued(t, makePod("p"))
			s.hold("a", others, nodeName(0))
			s.events.HandleCycleStart(nil)
			_, err := s.scheduler.SchedulePod(s.ctx, s.fw, framework.NewCycleState(), pod)
			if err == nil {
				t.Fatal("it has a node")
			}
			c.happens(s)
			s.events.HandleFailedCycle(s.ctx, pod.Pod, err)
			if again := s.blocked.takeRetries(); (len(again) == 1) != c.want {
				t.Errorf("%v are looked at again, want the pod: %t", again, c.want)
			}
			s.hold("a", others, nodeName(0))
			if err := s.schedule(pod); err == nil || len(s.blocked.takeRetries()) > 0 {
				t.Errorf("in the next cycle, while it is held, the pod is looked at again: %v", err)
			}
		})
	}
}

// TestWake: a pod that waits in the queue is activated, and has a node.
func TestWake(t *testing.T) {
	s := newStage(t, 1)
	go s.wake(s.ctx)
	queue, logger, pod := s.scheduler.SchedulingQueue, klog.FromContext(s.ctx), makePod("p")
	queue.Add(s.ctx, pod)
	s.hold("a", others, nodeName(0))
	attempt := func() (*framework.QueuedPodInfo, error) {
		entity, err := queue.Pop(logger)
		must.Succeed(t, err)
		info := entity.(*framework.QueuedPodInfo)
		return info, s.schedule(info)
	}
	info, err := attempt()
	if err == nil || !strings.Contains(err.Error(), ledger.ErrReasonHeld) {
		t.Fatalf("it finds a node: %v", err)
	}
	info.UnschedulablePlugins.Insert(Name)
	must.Succeed(t, queue.AddUnschedulablePodIfNotPresent(logger, info, queue.SchedulingCycle()))
	s.holds.Release("a")
	if err := wait.PollUntilContextTimeout(s.ctx, 5*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		s.clock.Step(wakeEvery)
		return len(queue.PodsInActiveQ()) == 1, nil
	}); err != nil {
		t.Fatalf("it is not activated: %v", err)
	}
	if _, err := attempt(); err != nil {
		t.Errorf("it finds no node: %v", err)
	}
}

func TestArguments(t *testing.T) {
	_, err := New(ledger.New(), cacheevents.New(), extensionpoints.New(), watches.New())(t.Context(), &runtime.Unknown{}, newStage(t, 1).handle)
	if err == nil || !strings.Contains(err.Error(), "profiles["+testProfile+"]") || !strings.Contains(err.Error(), "takes none") {
		t.Errorf("error %v, want one that names the profile", err)
	}
}

// BenchmarkFilter measures the filter, which runs for every pod on every node that the scheduler looks at.
func BenchmarkFilter(b *testing.B) {
	s := newStage(b, 1000)
	plain := makePod("plain")
	run := func(name, node string, held bool) {
		b.Run(name, func(b *testing.B) {
			state := framework.NewCycleState()
			_, status := s.PreFilter(s.ctx, state, plain, nil)
			if held == status.IsSkip() {
				b.Fatal(status)
			}
			info, err := s.snapshot.Get(node)
			must.Succeed(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if status := s.Filter(s.ctx, state, plain, info); !status.IsSuccess() {
					b.Fatal(status)
				}
			}
		})
	}
	run("holds=0", nodeName(0), false)
	for i := range 1000 {
		s.holds.FollowPlan(hold.Holder{Profile: testProfile, Group: fmt.Sprintf("default/train-%d", i%50)}, nil,
			[]hold.Hold{{For: types.UID(fmt.Sprint(i)), Node: nodeName(i % 500), Request: resource.Vector{gpu: 1, v1.ResourceCPU: 2000, v1.ResourceMemory: 8 << 30}}})
	}
	run("holds=1000/node=free", nodeName(999), true)
	run("holds=1000/node=held", nodeName(0), true)
}

// BenchmarkFilters measures what a cycle costs per node, including all of the profile's filters.
func BenchmarkFilters(b *testing.B) {
	for _, held := range []int{0, 1000} {
		b.Run(fmt.Sprintf("holds=%d", held), func(b *testing.B) {
			s := newStage(b, 1000)
			for i := range held {
				s.holds.FollowPlan(others, nil, []hold.Hold{{For: types.UID(fmt.Sprint(i)), Node: nodeName(i % 500), Request: resource.Vector{gpu: 1}}})
			}
			state, pod := framework.NewCycleState(), makePod("plain")
			if _, status, _ := s.fw.RunPreFilterPlugins(s.ctx, state, pod); !status.IsSuccess() {
				b.Fatal(status)
			}
			info, err := s.snapshot.Get(nodeName(999))
			must.Succeed(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if status := s.fw.RunFilterPlugins(s.ctx, state, pod, info); !status.IsSuccess() {
					b.Fatal(status)
				}
			}
		})
	}
}

// TestBlockedNodes: the nodes that refused a pod are those that the plugin refused, of all that refused it. It also
// waits for devices, since it may need some.
func TestBlockedNodes(t *testing.T) {
	s := newStage(t, 3)
	s.hold("a", others, nodeName(0))
	s.hold("b", others, nodeName(1))
	s.scheduler.Cache.RemoveNode(klog.FromContext(s.ctx), st.MakeNode().Name(nodeName(2)).Obj())
	s.scheduler.Cache.AddNode(klog.FromContext(s.ctx), st.MakeNode().Name(nodeName(2)).Obj()) // without GPUs
	s.scheduler.Look(t)
	if err := s.schedule(queued(t, makePod("p"))); err == nil {
		t.Fatal("it has a node")
	}
	got := map[string]bool{}
	for _, node := range s.blocked.pods["p"].nodes {
		got[node] = true
	}
	if diff := cmp.Diff(map[string]bool{nodeName(0): true, nodeName(1): true, anyDevice: true}, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}
