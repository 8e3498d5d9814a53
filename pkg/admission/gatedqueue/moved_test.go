package gatedqueue

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// byGang is a gate that refuses the pods of a gang that gathers, as they name it.
type byGang struct{ closed bool }

func (g *byGang) Name() string { return "gate" }

func (g *byGang) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	if key, _, _ := gangspec.KeyOf(pod); g.closed && key.Name == "gathers" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "it gathers")
	}
	return nil
}

// movingPod is a pod on its way through a gated and kube-scheduler's queue.
type movingPod struct {
	gated *Queue
	queue *queue.PriorityQueue
	gate  *byGang
	// before and now are its versions.
	before, now *v1.Pod
}

// popped takes the pod out of the queue, as a cycle does.
func (m *movingPod) popped(t *testing.T) *framework.QueuedPodInfo {
	t.Helper()
	m.gated.Add(t.Context(), m.before)
	entity, err := m.queue.Pop(klog.Background())
	must.Succeed(t, err)
	m.gate.closed = true
	return entity.(*framework.QueuedPodInfo)
}

// reject ends a cycle of the pod: the gate's plugin has refused it.
func (m *movingPod) reject(t *testing.T, info *framework.QueuedPodInfo, version *v1.Pod) {
	t.Helper()
	info.UnschedulablePlugins = sets.New(m.gate.Name())
	must.Succeed(t, info.PodInfo.Update(version))
	must.Succeed(t, m.queue.AddUnschedulablePodIfNotPresent(klog.Background(), info, m.queue.SchedulingCycle()))
}

// TestPodThatMoves: a pod that leaves the gang that keeps it back, for none or for another one, comes into the queue,
// wherever it is, and whether the plugin that opens the gate or the queue gets to know it first.
func TestPodThatMoves(t *testing.T) {
	metrics.Register()
	logger := klog.Background()
	named := func(label, annotation string) *v1.Pod {
		p := pod("a")
		if label != "" {
			p = p.Label("pod-group.scheduling.sigs.k8s.io", label)
		}
		if annotation != "" {
			p = p.Annotation("gang.scheduling.koordinator.sh/name", annotation)
		}
		return p.Obj()
	}
	versions := map[string][2]*v1.Pod{
		"a label that goes":           {named("gathers", ""), named("", "")},
		"an annotation that goes":     {named("", "gathers"), named("", "")},
		"another label":               {named("gathers", ""), named("complete", "")},
		"another annotation":          {named("", "gathers"), named("", "complete")},
		"a label uncovered":           {named("complete", "gathers"), named("complete", "")},
		"an annotation over a label":  {named("gathers", ""), named("gathers", "complete")},
		"an annotation for the label": {named("gathers", ""), named("", "complete")},
	}
	activate := func(m *movingPod) {
		m.gated.Activate(logger, map[string]*v1.Pod{"ns/a": m.now})
	}
	update := func(m *movingPod) { m.gated.Update(t.Context(), m.before, m.now) }
	orders := map[string][]func(*movingPod){"the plugin first": {activate, update}, "the queue first": {update, activate}}
	places := map[string]func(t *testing.T, m *movingPod, happen []func(*movingPod)){
		"in the gated queue": func(t *testing.T, m *movingPod, happen []func(*movingPod)) {
			m.gate.closed = true
			m.gated.Add(t.Context(), m.before)
			for _, do := range happen {
				do(m)
			}
		},
		"rejected": func(t *testing.T, m *movingPod, happen []func(*movingPod)) {
			m.reject(t, m.popped(t), m.before)
			for _, do := range happen {
				do(m)
			}
		},
		"in its cycle": func(t *testing.T, m *movingPod, happen []func(*movingPod)) {
			info := m.popped(t)
			for _, do := range happen {
				do(m)
			}
			m.reject(t, info, m.now)
		},
		"at the end of its cycle": func(t *testing.T, m *movingPod, happen []func(*movingPod)) {
			info := m.popped(t)
			happen[0](m)
			m.reject(t, info, m.now)
			happen[1](m)
		},
	}
	for version, pods := range versions {
		for order, happen := range orders {
			for place, play := range places {
				t.Run(version+", "+place+", "+order, func(t *testing.T) {
					g := &byGang{}
					gates := map[string]map[string]fwk.PreEnqueuePlugin{"gated": {g.Name(): g}}
					q := queue.NewTestQueue(t.Context(), func(a, b fwk.QueuedEntityInfo) bool { return a.GetTimestamp().Before(b.GetTimestamp()) },
						queue.WithPreEnqueuePluginMap(gates), queue.WithPodInitialBackoffDuration(0), queue.WithPodMaxBackoffDuration(0),
						queue.WithQueueingHintMapPerProfile(queue.QueueingHintMapPerProfile{"gated": {}}))
					m := &movingPod{
						gated: &Queue{SchedulingQueue: q, gates: map[string][]fwk.PreEnqueuePlugin{"gated": {g}}, less: func(_, _ fwk.QueuedEntityInfo) bool { return false }, moved: gangspec.Moved, pods: map[types.UID]gatedPod{}},
						queue: q, gate: g, before: pods[0], now: pods[1],
					}
					m.now.ResourceVersion = "2"
					play(t, m, happen)
					enters := slices.Concat(q.PodsInActiveQ(), q.PodsInBackoffQ())
					if len(enters) != 1 || enters[0].ResourceVersion != "2" || len(m.gated.pods) > 0 {
						t.Errorf("%d pods are to be scheduled: %v; rejected or gated: %v; in the gated queue: %d", len(enters), enters, q.UnschedulablePods(), len(m.gated.pods))
					}
				})
			}
		}
	}
}
