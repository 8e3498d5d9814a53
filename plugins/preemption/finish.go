package preemption

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// markMessage begins what a pod's condition says that this profile is evicting. It is
// what kube-scheduler's executor writes.
func (pl *GangPreemption) markMessage() string { return pl.fw.ProfileName() + ": preempting " }

// mark says in a pod's status that it is evicted, before it is. It answers the pod as it
// is then.
func (pl *GangPreemption) mark(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	return pl.setTarget(ctx, pod, v1.ConditionTrue, v1.PodReasonPreemptionByScheduler, pl.markMessage()+"to accommodate a higher priority pod")
}

// reasonWithdrawn is the reason of the condition DisruptionTarget, false, of pods that were
// marked and run on.
const reasonWithdrawn = "PreemptionWithdrawn"

// unmark takes a mark back.
func (pl *GangPreemption) unmark(ctx context.Context, pod *v1.Pod) {
	if now, ok := pl.podByUID(pod.UID); ok && pl.marked(now) {
		pod = now // it may have been marked in a version that this one does not know of
	} else if !pl.marked(pod) {
		return
	}
	if _, err := pl.setTarget(ctx, pod, v1.ConditionFalse, reasonWithdrawn, pl.fw.ProfileName()+": the preemption was not carried out"); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to take back that a pod is evicted; trying again", "pod", klog.KObj(pod))
	}
}

func (pl *GangPreemption) setTarget(ctx context.Context, pod *v1.Pod, is v1.ConditionStatus, reason, message string) (*v1.Pod, error) {
	status := pod.Status.DeepCopy()
	if !podutil.UpdatePodCondition(status, &v1.PodCondition{
		Type: v1.DisruptionTarget, Status: is, Reason: reason, Message: message,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, v1.DisruptionTarget),
	}) {
		return pod, nil
	}
	err := util.PatchPodStatus(ctx, exactly{pl.handle.ClientSet(), pod.UID}, pod.Name, pod.Namespace, &pod.Status, status)
	if err != nil && !apierrors.IsNotFound(err) {
		return pod, fmt.Errorf("marking pod %s: %w", klog.KObj(pod), err)
	}
	marked := *pod
	marked.Status = *status
	return &marked, nil
}

// marked tells pods that this profile has begun to evict and that run on.
func (pl *GangPreemption) marked(pod *v1.Pod) bool {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil {
		return false
	}
	_, c := podutil.GetPodCondition(&pod.Status, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler && strings.HasPrefix(c.Message, pl.markMessage())
}

// unfinished is the pods that were marked and run on, and since when that is known.
type unfinished struct {
	mu    sync.Mutex
	since map[types.UID]time.Time
}

func (u *unfinished) note(pod types.UID, marked bool, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !marked {
		delete(u.since, pod)
		return
	}
	if u.since == nil {
		u.since = map[types.UID]time.Time{}
	}
	if _, ok := u.since[pod]; !ok {
		u.since[pod] = now
	}
}

func (u *unfinished) longerThan(d time.Duration, now time.Time) []types.UID {
	u.mu.Lock()
	defer u.mu.Unlock()
	var pods []types.UID
	for pod, since := range u.since {
		if now.Sub(since) >= d {
			pods = append(pods, pod)
		}
	}
	return pods
}

const (
	// tidyEvery is how often is looked for what has to be finished or given back.
	tidyEvery = 2 * time.Second
	// finishAfter is how long a pod that was marked may run on.
	finishAfter = 5 * time.Second
)

// tidy finishes evictions that were begun and interrupted, and gives back what is held for
// preemptors that wait for something else by now, as long as this process schedules.
func (pl *GangPreemption) tidy(ctx context.Context) {
	select {
	case <-pl.Leading:
	case <-ctx.Done():
		return
	}
	ticker := time.NewTicker(tidyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		pl.finish(ctx, pl.clock.Now())
		pl.giveBack(ctx)
	}
}

// finish evicts pods that were marked and run on in a gang that is below its minimum by
// now: it goes whole, and must not stay in part. Where the gang can run on, or the pod is in
// none, nothing was lost yet, and the mark is taken back: if the pod has to go, the preemptor
// chooses it again.
func (pl *GangPreemption) finish(ctx context.Context, now time.Time) {
	underway := pl.Underway.all()
	for _, uid := range pl.unfinished.longerThan(finishAfter, now) {
		pod, ok := pl.podByUID(uid)
		if !ok || underway[uid] || !pl.marked(pod) {
			continue
		}
		together, known := pl.runningWith(pod)
		switch {
		case !known:
			continue
		case !slices.ContainsFunc(together, func(f gang.Footprint) bool { return len(f.Running) < f.Min }):
			pl.unmark(ctx, pod)
			continue
		}
		for _, f := range together {
			for _, m := range f.Running {
				// Where broken gangs are to be left alone, only what was begun is finished.
				if one, ok := pl.podByUID(m.Pod.UID); ok && one.Spec.NodeName != "" && (pl.args.EvictBrokenGangs || pl.marked(one)) {
					pl.delete(ctx, one)
				}
			}
		}
	}
}

// runningWith is what runs of the gang of a pod, and of those that start together with it;
// false where nobody knows its minimum.
func (pl *GangPreemption) runningWith(pod *v1.Pod) ([]gang.Footprint, bool) {
	key, _, member := gang.KeyOf(pod)
	if !member {
		return nil, true
	}
	if together := pl.Roster.Running(pod.Spec.SchedulerName, key); len(together) > 0 {
		return together, true
	}
	f := gang.Footprint{Key: key}
	var known bool
	if f.Min, known = gang.MinimumOf(pod); !known {
		return nil, false
	}
	pods, err := pl.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil, false
	}
	for _, one := range pods {
		other, _, member := gang.KeyOf(one)
		if member && other == key && one.Spec.NodeName != "" && one.DeletionTimestamp == nil && !podutil.IsPodTerminal(one) {
			f.Running = append(f.Running, gang.Placed{Pod: one, Node: one.Spec.NodeName})
		}
	}
	return []gang.Footprint{f}, true
}

func (pl *GangPreemption) delete(ctx context.Context, pod *v1.Pod) {
	logger := klog.FromContext(ctx)
	if _, err := pl.mark(ctx, pod); err != nil {
		logger.Error(err, "Failed to finish an eviction; trying again", "pod", klog.KObj(pod))
		return
	}
	err := pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		logger.Error(err, "Failed to finish an eviction; trying again", "pod", klog.KObj(pod))
		return
	}
	pl.handle.EventRecorder().Eventf(pod, nil, v1.EventTypeNormal, "Preempted", actionPreempting, "the rest of its gang was preempted, and this eviction was interrupted")
}

// giveBack ends the nominations of gangs that wait for something else than room: members
// that are missing, or a PodGroup that is gone. Members that are made anew have a while.
func (pl *GangPreemption) giveBack(ctx context.Context) {
	now, nominations := pl.clock.Now(), pl.Holds.Nominations()
	maps.DeleteFunc(pl.idle, func(holder string, _ time.Time) bool { return nominations[holder] == nil })
	for holder, pods := range nominations {
		group, mine := strings.CutPrefix(holder, holds.Holder(pl.fw.ProfileName(), ""))
		if !mine || holds.IsPod(group) || pl.Roster.Placing(holder) {
			delete(pl.idle, holder)
			continue
		}
		if pl.idle[holder].IsZero() {
			pl.idle[holder] = now
		}
		if now.Sub(pl.idle[holder]) < idleFor {
			continue
		}
		delete(pl.idle, holder)
		pl.Holds.DropNominations(holder)
		for _, uid := range pods {
			if pod, ok := pl.podByUID(uid); ok {
				pl.clear(ctx, pod)
			}
		}
	}
}

// idleFor is how long capacity is held for a gang that could not use it.
const idleFor = 10 * time.Second
