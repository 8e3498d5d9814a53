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
	status := pod.Status.DeepCopy()
	if !podutil.UpdatePodCondition(status, &v1.PodCondition{
		Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
		Message:            pl.markMessage() + "to accommodate a higher priority pod",
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, pod.Generation, v1.DisruptionTarget),
	}) {
		return pod, nil
	}
	err := util.PatchPodStatus(ctx, pl.handle.ClientSet(), pod.Name, pod.Namespace, &pod.Status, status)
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
// none, nothing was lost yet: if it has to go, the preemptor chooses it again.
func (pl *GangPreemption) finish(ctx context.Context, now time.Time) {
	underway := pl.Underway.all()
	for _, uid := range pl.unfinished.longerThan(finishAfter, now) {
		pod, ok := pl.podByUID(uid)
		if !ok || underway[uid] || !pl.marked(pod) {
			continue
		}
		for _, one := range pl.leftOver(pod) {
			pl.delete(ctx, one)
		}
	}
}

// leftOver is what runs of the gang of a marked pod, and of those that start together with
// it, if that is less than a minimum: all of it, or what is marked where broken gangs are to
// be left alone.
func (pl *GangPreemption) leftOver(pod *v1.Pod) []*v1.Pod {
	key, _, member := gang.KeyOf(pod)
	if !member {
		return nil
	}
	together := pl.Roster.Running(pod.Spec.SchedulerName, key)
	if !slices.ContainsFunc(together, func(f gang.Footprint) bool { return len(f.Running) < f.Min }) {
		return nil
	}
	var left []*v1.Pod
	for _, f := range together {
		for _, m := range f.Running {
			if one, ok := pl.podByUID(m.Pod.UID); ok && one.Spec.NodeName != "" && (pl.args.EvictBrokenGangs || pl.marked(one)) {
				left = append(left, one)
			}
		}
	}
	return left
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
