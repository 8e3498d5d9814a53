package gang

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/admission/positions"
	"github.com/lockstep-sh/lockstep/pkg/admission/registry"
	"github.com/lockstep-sh/lockstep/pkg/admission/waitingroom"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/pkg/status"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

const (
	testProfile = sample.Profile
	gpu         = sample.GPU
	rack        = "topology.example.com/rack"
)

// stage is the plugin inside a real scheduler: all default plugins, the real cache, snapshot and
// queue. Nothing runs; the API server is a fake without objects.
type stage struct {
	*Gang
	registry  *registry.Registry
	room      *waitingroom.Room
	time      *ahead
	victims   victims
	queue     queue
	ctx       context.Context
	scheduler *idle.Scheduler
	snapshot  *cache.Snapshot
}

// newStage makes a stage with these nodes, and pods on them.
func newStage(tb testing.TB, nodes []*v1.Node, pods ...*v1.Pod) *stage {
	tb.Helper()
	return newStageWith(tb, nil, nodes, pods...)
}

// queue keeps all gangs waiting for what it is told; at first for nothing.
type queue struct {
	wait, limit atomic.Pointer[queueing.Wait]
	// ceiling is how many GPUs members may have together; 0 for any number.
	ceiling int64
}

func (q *queue) ReportedWait(*v1.Pod) queueing.Wait { return ptr.Deref(q.wait.Load(), queueing.Wait{}) }
func (q *queue) Limits([]*v1.Pod) queueing.Wait     { return ptr.Deref(q.limit.Load(), queueing.Wait{}) }
func (*queue) Hopeless(*v1.Pod)                     {}
func (*queue) CompareQueues(_, _ hold.Holder) int   { return 0 }

func (q *queue) Within(_ hold.Holder, members []*v1.Pod) (within []*v1.Pod) {
	used := int64(0)
	for _, pod := range members {
		asks := ledger.DemandOf(&framework.PodInfo{Pod: pod}).Request[gpu]
		if q.ceiling == 0 || used+asks <= q.ceiling {
			used, within = used+asks, append(within, pod)
		}
	}
	return within
}

// noReservations knows of no pod that waits for a Reservation.
type noReservations struct{}

func (noReservations) AwaitsReservation(*v1.Pod) bool { return false }

// newStageWith is newStage with more objects that the API server has, and that the scheduler knows.
func newStageWith(tb testing.TB, objects []runtime.Object, nodes []*v1.Node, pods ...*v1.Pod) *stage {
	tb.Helper()
	s := &stage{}
	holds := ledger.New()
	s.registry = registry.New(holds, nil, watches.New())
	s.time = &ahead{}
	s.room = waitingroom.New(s.registry, noQueues{}, holds, &s.victims, s.time)
	s.room.Start(tb.Context(), noQueues{}, nil)
	s.registry.SetRoom(s.room)
	shared := Shared{Gangs: s.registry, Holds: holds, Order: positions.New(), Plugins: extensionpoints.New(), Statuses: status.New(await.Closed()), Leading: await.Closed(), Decisions: decisions.New(), Turns: &s.queue, Reserved: noReservations{}}
	held := func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return heldCapacity{holds}, nil
	}
	s.scheduler = idle.New(tb, idle.Options{Name: testProfile, Objects: objects, Plugins: frameworkruntime.Registry{Name: idle.Keep(&s.Gang, New(shared)), heldCapacity{}.Name(): held}, Configure: configure})
	s.ctx, s.snapshot = s.scheduler.Context, s.scheduler.Snapshot
	nominator := s.holds.Nominator(s.scheduler.SchedulingQueue, func(*v1.Pod) bool { return false })
	s.scheduler.Framework.SetPodNominator(nominator)
	for _, node := range nodes {
		s.scheduler.Cache.AddNode(klog.FromContext(s.ctx), node)
	}
	for _, pod := range pods {
		must.Succeed(tb, s.scheduler.Cache.AddPod(klog.FromContext(s.ctx), pod))
	}
	if len(objects) > 0 {
		s.scheduler.Start()
	}
	s.scheduler.Look(tb)
	return s
}

// noQueues is where no profile has queues, and no gate.
type noQueues struct{}

func (noQueues) AddCandidate(turns.Job)                   {}
func (noQueues) RemoveCandidate(string)                   {}
func (noQueues) First(turns.Selection) (turns.Job, bool)  { return turns.Job{}, false }
func (noQueues) QueueOf(*v1.Pod) string                   { return "" }
func (noQueues) Admit(context.Context, string) *v1.Pod    { return nil }
func (noQueues) TakePodsToActivate() []*v1.Pod            { return nil }
func (noQueues) RetryFirst()                              {}
func (noQueues) Left(*v1.Pod)                             {}
func (noQueues) Activate(klog.Logger, map[string]*v1.Pod) {}
func (noQueues) Gated(*v1.Pod) bool                       { return false }

// ahead is a clock that is ahead of the time.
type ahead struct {
	clock.RealClock
	by time.Duration
}

func (a *ahead) Now() time.Time { return time.Now().Add(a.by) }

// victims are those that have not ended, by what they make room for.
type victims map[hold.Holder]int

func (v *victims) Victims(holder hold.Holder) int    { return (*v)[holder] }
func (*victims) RecordEnd(types.UID, time.Time) bool { return false }

// ask lets in the job whose turn it is, when pauses are over.
func (s *stage) ask() {
	s.time.by += time.Second
	s.room.Next(s.ctx)
}

// configure puts the plugin where it has to be. The order of the queue and the binder stay kube-scheduler's: no plugin
// imports another.
func configure(p *schedconfig.KubeSchedulerProfile) {
	only := schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: Name}}}
	p.Plugins.PreFilter, p.Plugins.PostFilter, p.Plugins.Bind = only, only, only
	p.Plugins.Score = schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: Name, Weight: 20}}}
	p.PluginConfig = append(p.PluginConfig, schedconfig.PluginConfig{Name: Name, Args: &config.GangArgs{
		DefaultWaitTime: metav1.Duration{Duration: 10 * time.Minute},
		InitialBackoff:  metav1.Duration{Duration: 250 * time.Millisecond},
		MaxBackoff:      metav1.Duration{Duration: time.Second},
		ExplanationQPS:  10,
	}})
}

// heldCapacity stands in for the plugin of that name, which is another package: it goes by what Gang has
// granted.
type heldCapacity struct{ holds *ledger.Shared }

func (heldCapacity) Name() string { return "HeldCapacity" }

// asks is what a pod takes of a node, for the length of a cycle.
type asks struct{ ledger.Demand }

// Clone returns the same, which never changes.
func (a *asks) Clone() fwk.StateData { return a }

const asksKey fwk.StateKey = "heldCapacity"

func (pl heldCapacity) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if pl.holds.Empty() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(asksKey, &asks{ledger.DemandOf(&framework.PodInfo{Pod: pod})})
	return nil, nil
}

func (heldCapacity) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (pl heldCapacity) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	demand, known := asks{}, false
	if data, err := state.Read(asksKey); err == nil {
		demand, known = *data.(*asks), true
	}
	if !known { // the test runs this Filter alone
		demand.Demand = ledger.DemandOf(&framework.PodInfo{Pod: pod})
	}
	return pl.holds.Check(demand.Demand, info, ledger.Granted(state, pod)...)
}

// makeNodes returns nodes of 8 GPUs, spread over racks.
func makeNodes(count, racks int) []*v1.Node {
	nodes := make([]*v1.Node, count)
	for i := range nodes {
		nodes[i] = sample.Node(fmt.Sprintf("node-%04d", i), 8).
			Label(v1.LabelTopologyZone, "z"+strconv.Itoa(i*4/count)).Label(rack, "r"+strconv.Itoa(i*racks/count)).Obj()
	}
	return nodes
}

// makeMembers returns members of gang default/name, each with gpus GPUs; change, if not nil, is applied
// to member i.
func makeMembers(name string, count, gpus int, change func(i int, pod *st.PodWrapper)) []*v1.Pod {
	pods := make([]*v1.Pod, count)
	for i := range pods {
		pod := sample.Pod(fmt.Sprintf("%s-%04d", name, i)).Label("app", name).
			Annotation(v1alpha1.GangNameAnnotation, name).Annotation(v1alpha1.MinAvailableAnnotation, strconv.Itoa(count)).
			Req(map[v1.ResourceName]string{gpu: strconv.Itoa(gpus), v1.ResourceCPU: "2", v1.ResourceMemory: "8Gi"})
		if change != nil {
			change(i, pod)
		}
		pods[i] = pod.Obj()
	}
	return pods
}

// fill returns a pod for each node that takes all of its GPUs but left.
func fill(nodes []*v1.Node, left int) []*v1.Pod {
	pods := make([]*v1.Pod, len(nodes))
	for i, node := range nodes {
		pods[i] = st.MakePod().Namespace("other").Name("on-" + node.Name).UID("on-" + node.Name).Node(node.Name).
			Req(map[v1.ResourceName]string{gpu: strconv.Itoa(8 - left)}).Obj()
	}
	return pods
}
