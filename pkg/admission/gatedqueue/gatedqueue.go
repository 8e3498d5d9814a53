// Package gatedqueue keeps pods that cannot be scheduled yet out of the scheduling queue.
//
// kube-scheduler's queue walks over every pod that waits in it, gated ones too, for each event of the
// cluster that any plugin cares about; every binding is such an event. With thousands of members behind
// the gate of their gangs, a scheduler spends its time on that walk. A pod that PreEnqueue of its profile's
// gate refuses waits in front of the queue, where an event costs nothing, and enters the queue when it is
// activated.
//
// It decides nothing: the gate decides which pods enter, and the plugin that opens the gate activates the
// pod, as the queue itself asks of plugins. Pods that are activated together enter in the order in which
// the queue has them: the scheduler takes the first as soon as it is there. It also passes the events of the
// cluster on to the plugins before the queue gets them.
package gatedqueue

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Queue is a scheduling queue with pods that wait in front of it.
type Queue struct {
	queue.SchedulingQueue
	// gates are the gates of the profiles, by scheduler name, in the profile's order.
	gates map[string][]fwk.PreEnqueuePlugin
	// moved reports whether the gates have to be asked about a pod again since it has changed.
	moved func(before, now *v1.Pod) bool
	// less is the order of the queue.
	less fwk.LessFunc
	// forget is called with a pod once the queue has let go of it.
	forget func(types.UID)
	// heard is called with events that the scheduler's cache has taken in, and passes them on to the queue.
	heard func(event fwk.ClusterEvent, before, after any, pass func())

	// mu makes asking the gate and letting the pod wait one step, so that a pod cannot be activated in
	// between and miss it. It also makes leaving here and entering the queue one step, so that a pod
	// cannot be deleted in between. The queue's own lock and the gate's are taken under it, never the
	// other way round.
	mu   sync.Mutex
	pods map[types.UID]gatedPod
}

// gatedPod is a pod that waits here.
type gatedPod struct {
	*v1.Pod
	// since is when it came: the queue would count from then.
	since time.Time
}

// Install puts a Queue in front of that of a scheduler that does not run yet. gates are the names of the PreEnqueue
// plugins whose pods may wait there. forget is called with each pod that is deleted or bound, after the queue has let
// go of it: what a queue is sorted by must not change before. heard is called with each event of the cluster that the
// scheduler's cache has taken in, and has to pass it on to the queue. moved reports whether the gates may answer
// otherwise for a pod now than for an earlier version of it.
func Install(sched *scheduler.Scheduler, gates []string, forget func(types.UID),
	heard func(event fwk.ClusterEvent, before, after any, pass func()), moved func(before, now *v1.Pod) bool) *Queue {
	q := &Queue{SchedulingQueue: sched.SchedulingQueue, gates: map[string][]fwk.PreEnqueuePlugin{}, forget: forget,
		heard: heard, moved: moved, pods: map[types.UID]gatedPod{}}
	for name, profile := range sched.Profiles {
		q.less = profile.QueueSortFunc() // it is the same in all
		for _, plugin := range profile.PreEnqueuePlugins() {
			if slices.Contains(gates, plugin.Name()) {
				q.gates[name] = append(q.gates[name], plugin)
				profile.SetPodActivator(q)
			}
		}
	}
	sched.SchedulingQueue = q
	return q
}

// Gated reports whether a pod waits at a gate: here, or in the queue, at that of any PreEnqueue plugin. A member of a
// native pod group, which the queue takes as a whole, counts as waiting for the others.
func (q *Queue) Gated(pod *v1.Pod) bool {
	q.mu.Lock()
	_, waits := q.pods[pod.UID]
	q.mu.Unlock()
	if waits || pod.Spec.SchedulingGroup != nil && utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload) {
		return true
	}
	info, known := q.GetPod(pod.Name, pod.Namespace, pod.Spec.SchedulingGroup)
	return known && info.Gated()
}

// gated asks the gates until one refuses, and reports whether one does. A pod with a nominated node goes
// into the queue in any case: the queue accounts for it there.
func (q *Queue) gated(ctx context.Context, pod *v1.Pod) bool {
	return pod.Status.NominatedNodeName == "" &&
		slices.ContainsFunc(q.gates[pod.Spec.SchedulerName], func(gate fwk.PreEnqueuePlugin) bool {
			return !gate.PreEnqueue(ctx, pod).IsSuccess()
		})
}

// Add lets a new pod wait, or lets it into the queue.
func (q *Queue) Add(ctx context.Context, pod *v1.Pod) {
	if !q.keep(ctx, gatedPod{pod, time.Now()}) {
		q.SchedulingQueue.Add(ctx, pod)
	}
}

// keep makes a pod wait here if the gates refuse it; it returns false if they do not.
func (q *Queue) keep(ctx context.Context, g gatedPod) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.gated(ctx, g.Pod) {
		return false
	}
	q.pods[g.UID] = g
	return true
}

// Update takes in the new version of a pod that waits here, or passes it on. The queue itself does not ask
// the gates again for a pod that has changed: a plugin that activated it before the queue had this version
// has activated the version before.
func (q *Queue) Update(ctx context.Context, oldPod, newPod *v1.Pod) {
	q.mu.Lock()
	before, waits := q.pods[oldPod.UID]
	delete(q.pods, oldPod.UID)
	stays := waits && q.gated(ctx, newPod)
	if stays {
		q.pods[newPod.UID] = gatedPod{newPod, before.since}
	}
	q.mu.Unlock()
	switch {
	case stays:
	case waits:
		q.SchedulingQueue.Add(ctx, newPod)
	default:
		q.SchedulingQueue.Update(ctx, oldPod, newPod)
		if q.moved(oldPod, newPod) {
			q.SchedulingQueue.Activate(klog.FromContext(ctx), map[string]*v1.Pod{newPod.Namespace + "/" + newPod.Name: newPod})
		}
	}
}

// Delete forgets a pod. The queue may have it as well: an update may have come while the pod was put back.
func (q *Queue) Delete(logger klog.Logger, pod *v1.Pod) {
	q.mu.Lock()
	delete(q.pods, pod.UID)
	q.mu.Unlock()
	q.SchedulingQueue.Delete(logger, pod)
	q.forget(pod.UID)
}

// PutBack returns a pod that was taken from the queue and not tried, unless it is gone or has a node: it waits here if
// the gates refuse it. A pod that is deleted leaves pods before Delete is called.
func (q *Queue) PutBack(ctx context.Context, taken *v1.Pod, pods corelisters.PodLister) {
	q.mu.Lock()
	defer q.mu.Unlock()
	pod, err := pods.Pods(taken.Namespace).Get(taken.Name)
	switch {
	case err != nil, pod.UID != taken.UID, pod.Spec.NodeName != "":
	case q.gated(ctx, pod):
		q.pods[pod.UID] = gatedPod{pod, time.Now()}
	default:
		q.SchedulingQueue.Add(ctx, pod)
	}
	q.SchedulingQueue.Done(taken.UID)
}

// Activate lets pods that wait here into the queue, which calls PreEnqueue once more, and passes the
// others on.
func (q *Queue) Activate(logger klog.Logger, pods map[string]*v1.Pod) {
	rest := make(map[string]*v1.Pod, len(pods))
	var enter []gatedPod
	ctx := klog.NewContext(context.Background(), logger)
	q.mu.Lock()
	for key, pod := range pods {
		if waiting, ok := q.pods[pod.UID]; ok {
			delete(q.pods, pod.UID)
			enter = append(enter, waiting)
		} else {
			rest[key] = pod
		}
	}
	for _, pod := range q.ranked(ctx, enter) {
		q.SchedulingQueue.Add(ctx, pod)
	}
	q.mu.Unlock()
	if len(rest) > 0 {
		q.SchedulingQueue.Activate(logger, rest)
	}
}

// ranked sorts pods as the queue does. The gates are asked about each before: they set the position that
// a pod is sorted by.
func (q *Queue) ranked(ctx context.Context, waiting []gatedPod) []*v1.Pod {
	infos := make([]*framework.QueuedPodInfo, len(waiting))
	for i, g := range waiting {
		if len(waiting) > 1 {
			q.gated(ctx, g.Pod)
		}
		infos[i] = &framework.QueuedPodInfo{
			PodInfo:        &framework.PodInfo{Pod: g.Pod},
			QueueingParams: framework.QueueingParams{Timestamp: g.since, InitialAttemptTimestamp: &waiting[i].since},
		}
	}
	sort.Slice(infos, func(i, j int) bool { return q.less(infos[i], infos[j]) })
	pods := make([]*v1.Pod, len(infos))
	for i, info := range infos {
		pods[i] = info.Pod
	}
	return pods
}

// MoveAllToActiveOrBackoffQueue lets heard pass an event on to the queue.
func (q *Queue) MoveAllToActiveOrBackoffQueue(logger klog.Logger, event fwk.ClusterEvent, before, after any,
	check queue.PreEnqueueCheck) {
	q.heard(event, before, after, func() {
		q.SchedulingQueue.MoveAllToActiveOrBackoffQueue(logger, event, before, after, check)
	})
}

// PendingPods lists the pods that wait here too.
func (q *Queue) PendingPods() ([]*v1.Pod, string) {
	pods, summary := q.SchedulingQueue.PendingPods()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, g := range q.pods {
		pods = append(pods, g.Pod)
	}
	return pods, summary
}
