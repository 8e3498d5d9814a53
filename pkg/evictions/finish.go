package evictions

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// finishAfter is how long a marked pod may run on.
const finishAfter = 5 * time.Second

// PodUpdated updates what is known of a pod.
func (e *Evictor) PodUpdated(pod *v1.Pod) {
	if e.Marked(pod) {
		e.unfinished.LoadOrStore(pod.UID, e.Clock.Now())
	} else {
		e.unfinished.Delete(pod.UID)
	}
}

// PodDeleted records that a pod no longer exists.
func (e *Evictor) PodDeleted(pod *v1.Pod) {
	if pod.Spec.NodeName == "" {
		e.Underway.RecordEnd(pod.UID, e.Clock.Now()) // the scheduler's cache never had it
	}
	e.unfinished.Delete(pod.UID)
}

// Finish evicts marked pods that still run in a gang that was to be evicted whole, has lost pods since and is below its
// minimum: such a gang must not stay in part. Without evictBroken it evicts only marked pods. It takes the mark back if
// the gang can run on, has lost nothing since, or the pod was to be evicted alone: if the pod must go, the preemptor
// that needs its place chooses it again.
func (e *Evictor) Finish(ctx context.Context, now time.Time, evictBroken bool) {
	underway := e.Underway.AllVictims()
	for key, since := range e.unfinished.Range {
		uid := key.(types.UID)
		pod, ok := e.Pod(uid)
		if now.Sub(since.(time.Time)) < finishAfter || !ok || underway[uid] || !e.Marked(pod) {
			continue
		}
		rest, err := e.remainsOf(pod)
		switch {
		case err != nil:
			klog.FromContext(ctx).Error(err, "Failed to finish an eviction; trying again", "pod", klog.KObj(pod))
		case len(rest) == 0:
			e.Unmark(ctx, pod)
		default:
			e.evictRemains(ctx, rest, markedOf(pod), evictBroken)
		}
	}
}

// remainsOf returns what still runs of the gangs that start together with that of a pod, if they were being evicted
// whole and have lost pods since, and the rest is useless; otherwise nil.
func (e *Evictor) remainsOf(pod *v1.Pod) ([]gangstate.RunningGang, error) {
	of := OwnerOf(e.Gangs, pod)
	if of.IsPod() {
		return nil, nil
	}
	together, err := e.Together(of)
	if err != nil || OnNodes(together) >= markedOf(pod) {
		return nil, err
	}
	all := e.Gangs.Running(of.Profile, of.Gang) // includes gangs without running pods
	if !slices.ContainsFunc(slices.Concat(all, together),
		func(f gangstate.RunningGang) bool { return f.Whole || len(f.Running) < f.Min }) {
		return nil, nil
	}
	return together, nil
}

// evictRemains evicts what is left of gangs that had so many pods.
func (e *Evictor) evictRemains(ctx context.Context, left []gangstate.RunningGang, of int, evictBroken bool) {
	logger := klog.FromContext(ctx)
	leftToOwner := e.inSuspendedJobs(ctx, left)
	for _, f := range left {
		ended := 0
		for _, m := range f.Running {
			one, ok := e.Pod(m.Pod.UID)
			if !ok || one.Spec.NodeName == "" || !evictBroken && !e.Marked(one) || leftToOwner[one.UID] {
				continue
			}
			if _, err := e.evict(ctx, Eviction{Pod: one, Marked: e.Marked(one), Of: of, Note: finishing}); err != nil {
				logger.Error(err, "Failed to finish an eviction; trying again", "pod", klog.KObj(one))
				continue
			}
			ended++
		}
		if ended > 0 {
			logger.Info("Evicted what was left of a gang", "victim", f.Key.String(), "pods", ended, "why", finishing)
		}
	}
}

// ReleaseStuck releases victims that should have ended long ago, so that preemptors look for others.
func (e *Evictor) ReleaseStuck(now time.Time) {
	e.Underway.dropOldEnded(now)
	e.ReleaseLost(slices.Collect(maps.Keys(e.Underway.AllVictims())), func(pod *v1.Pod) bool { return Stuck(pod, now) })
}

// ReleaseLost releases victims that will not end. It records the end of those that no longer exist: they may have ended
// before they were recorded as victims.
func (e *Evictor) ReleaseLost(victims []types.UID, isLost func(*v1.Pod) bool) {
	var lost []types.UID
	for _, uid := range victims {
		switch pod, ok := e.Pod(uid); {
		case !ok:
			e.Underway.RecordEnd(uid, e.Clock.Now())
		case isLost(pod):
			lost = append(lost, uid)
		}
	}
	e.Underway.ReleaseVictims(nil, lost...)
}
