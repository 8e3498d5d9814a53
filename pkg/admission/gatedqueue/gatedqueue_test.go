package gatedqueue

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// recorder is the queue behind the gated queue: it notes what reaches it. A method
// that the gated queue must not call is nil and panics.
type recorder struct {
	queue.SchedulingQueue
	calls []string
}

func (r *recorder) note(call string, pods ...*v1.Pod) {
	for _, pod := range pods {
		call += " " + string(pod.UID)
	}
	r.calls = append(r.calls, call)
}

func (r *recorder) Add(_ context.Context, pod *v1.Pod)         { r.note("add", pod) }
func (r *recorder) Update(_ context.Context, old, pod *v1.Pod) { r.note("update", old, pod) }
func (r *recorder) Delete(_ klog.Logger, pod *v1.Pod)          { r.note("delete", pod) }
func (r *recorder) PendingPods() ([]*v1.Pod, string)           { return nil, "queue" }
func (r *recorder) Activate(_ klog.Logger, m map[string]*v1.Pod) {
	var pods []*v1.Pod
	for _, pod := range m {
		pods = append(pods, pod)
	}
	slices.SortFunc(pods, func(a, b *v1.Pod) int { return len(a.UID) - len(b.UID) })
	r.note("activate", pods...)
}

func (r *recorder) MoveAllToActiveOrBackoffQueue(_ klog.Logger, event fwk.ClusterEvent, _, _ any, _ queue.PreEnqueueCheck) {
	r.note("move " + string(event.Resource))
}

// gate refuses the pods that are in it.
type gate map[types.UID]bool

func (g gate) Name() string { return "gate" }

func (g gate) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	if g[pod.UID] {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "closed")
	}
	return nil
}

func pod(uid string) *st.PodWrapper {
	return st.MakePod().Name(uid).Namespace("ns").UID(uid).SchedulerName("gated")
}

func TestGatedPodsWait(t *testing.T) {
	nominated := pod("n").NominatedNodeName("node").Obj()
	elsewhere := pod("e").SchedulerName("other").Obj()
	for name, c := range map[string]struct {
		gate    gate
		do      func(l *Queue, g gate, logger klog.Logger)
		calls   []string
		waiting []string
	}{
		"a pod that the gate lets through goes into the queue": {
			do:    func(l *Queue, _ gate, _ klog.Logger) { l.Add(t.Context(), pod("a").Obj()) },
			calls: []string{"add a"},
		},
		"a pod that the gate refuses waits": {
			gate:    gate{"a": true},
			do:      func(l *Queue, _ gate, _ klog.Logger) { l.Add(t.Context(), pod("a").Obj()) },
			waiting: []string{"a"},
		},
		"a pod of a profile without the gate goes into the queue": {
			gate:  gate{"e": true},
			do:    func(l *Queue, _ gate, _ klog.Logger) { l.Add(t.Context(), elsewhere) },
			calls: []string{"add e"},
		},
		"a pod with a nominated node goes into the queue, which accounts for it": {
			gate:  gate{"n": true},
			do:    func(l *Queue, _ gate, _ klog.Logger) { l.Add(t.Context(), nominated) },
			calls: []string{"add n"},
		},
		"activated, a pod that waits enters the queue, and others are passed on": {
			gate: gate{"a": true},
			do: func(l *Queue, g gate, logger klog.Logger) {
				l.Add(t.Context(), pod("a").Obj())
				delete(g, "a")
				l.Activate(logger, map[string]*v1.Pod{"ns/a": pod("a").Obj(), "ns/b": pod("b").Obj()})
			},
			calls: []string{"add a", "activate b"},
		},
		"an update keeps a pod waiting while the gate refuses it": {
			gate: gate{"a": true},
			do: func(l *Queue, _ gate, _ klog.Logger) {
				l.Add(t.Context(), pod("a").Obj())
				l.Update(t.Context(), pod("a").Obj(), pod("a").Label("k", "v").Obj())
			},
			waiting: []string{"a"},
		},
		"an update with which the gate opens lets the pod into the queue": {
			gate: gate{"a": true},
			do: func(l *Queue, g gate, _ klog.Logger) {
				l.Add(t.Context(), pod("a").Obj())
				delete(g, "a")
				l.Update(t.Context(), pod("a").Obj(), pod("a").Obj())
			},
			calls: []string{"add a"},
		},
		"a pod made again under its name does not leave the old one waiting": {
			gate: gate{"a": true},
			do: func(l *Queue, _ gate, _ klog.Logger) {
				l.Add(t.Context(), pod("a").Obj())
				l.Update(t.Context(), pod("a").Obj(), pod("a2").Obj())
			},
			calls: []string{"add a2"},
		},
		"an update and a deletion of a pod in the queue are passed on": {
			do: func(l *Queue, _ gate, logger klog.Logger) {
				l.Update(t.Context(), pod("a").Obj(), pod("a").Obj())
				l.Delete(logger, pod("a").Obj())
			},
			calls: []string{"update a a", "delete a", "forget a"},
		},
		"a deleted pod waits no longer, and cannot be activated": {
			gate: gate{"a": true},
			do: func(l *Queue, _ gate, logger klog.Logger) {
				l.Add(t.Context(), pod("a").Obj())
				l.Delete(logger, pod("a").Obj())
				l.Activate(logger, map[string]*v1.Pod{"ns/a": pod("a").Obj()})
			},
			calls: []string{"delete a", "forget a", "activate a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			logger, _ := ktesting.NewTestContext(t)
			r := &recorder{}
			l := &Queue{SchedulingQueue: r, gates: map[string][]fwk.PreEnqueuePlugin{"gated": {c.gate}}, forget: func(uid types.UID) { r.calls = append(r.calls, "forget "+string(uid)) }, moved: func(_, _ *v1.Pod) bool { return false }, pods: map[types.UID]gatedPod{}}
			c.do(l, c.gate, logger)
			var waiting []string
			pods, _ := l.PendingPods()
			for _, pod := range pods {
				waiting = append(waiting, string(pod.UID))
			}
			if diff := cmp.Diff([][]string{c.calls, c.waiting}, [][]string{r.calls, waiting}); diff != "" {
				t.Errorf("calls to the queue, and pods that wait (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEventsAreTold: events are passed on by who hears of them.
func TestEventsAreTold(t *testing.T) {
	rec := &recorder{}
	q := &Queue{SchedulingQueue: rec, heard: func(event fwk.ClusterEvent, before, after any, pass func()) {
		rec.note("heard "+string(event.Resource), before.(*v1.Pod))
		pass()
	}}
	q.MoveAllToActiveOrBackoffQueue(klog.Background(), fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, pod("a").Obj(), nil, nil)
	if diff := cmp.Diff([]string{"heard AssignedPod a", "move AssignedPod"}, rec.calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

func (r *recorder) Done(pod types.UID) { r.calls = append(r.calls, "done "+string(pod)) }

// TestPutBack: a pod that was taken and not tried is in one place afterwards, and in none if it is gone.
func TestPutBack(t *testing.T) {
	now := pod("a").Label("version", "now").Obj()
	for name, c := range map[string]struct {
		gate   gate
		stored *v1.Pod
		calls  []string
		waits  *v1.Pod
	}{
		"the gate refuses it":           {gate{"a": true}, now, []string{"done a"}, now},
		"the gate lets it through":      {gate{}, now, []string{"add a", "done a"}, nil},
		"it is gone":                    {gate{"a": true}, nil, []string{"done a"}, nil},
		"it has a node":                 {gate{"a": true}, pod("a").Node("n").Obj(), []string{"done a"}, nil},
		"another pod has its name":      {gate{"a": true}, pod("a").UID("b").Obj(), []string{"done a"}, nil},
		"another, which is let through": {gate{}, pod("a").UID("b").Obj(), []string{"done a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			behind := &recorder{}
			q := &Queue{SchedulingQueue: behind, gates: map[string][]fwk.PreEnqueuePlugin{"gated": {c.gate}}, pods: map[types.UID]gatedPod{}}
			stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			if c.stored != nil {
				must.Succeed(t, stored.Add(c.stored))
			}
			q.PutBack(t.Context(), pod("a").Obj(), corelisters.NewPodLister(stored))
			if diff := cmp.Diff(c.calls, behind.calls); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
			if q.pods["a"].Pod != c.waits || len(q.pods) > 1 {
				t.Errorf("wait: %v", q.pods)
			}
		})
	}
}
