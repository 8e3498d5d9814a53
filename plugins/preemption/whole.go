package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

const (
	// recheckInterval is the interval of checking whether more members of an ending gang run, until all evicted ones are
	// seen to end. While evictions fail it doubles, up to maxRecheckInterval.
	recheckInterval    = 100 * time.Millisecond
	maxRecheckInterval = 5 * time.Second
)

// evictWhole ends a gang, and those that start together with it: the pods that run now, possibly more than were chosen,
// and those that start before all of these are seen to end. It marks all before it evicts the first, so that the next
// process can finish. If it evicts none, it takes the marks back. Jobs that ask for it are suspended: the Job controller
// deletes their pods.
func (pl *GangPreemption) evictWhole(ctx context.Context, d *demand, f *found, u unit, evicted *evictedPods) error {
	pods, ran := u.pods, 0
	var together []gangstate.Footprint
	var jobs []evictions.WholeJob
	if !u.owner.IsPod() {
		var err error
		together, err = pl.evictor.Together(u.owner, u.pods[0])
		if err == nil {
			pods, ran = union(pods, together, u.stay), evictions.OnNodes(together)
			jobs, err = pl.evictor.WholeJobs(together, pods)
		}
		if err != nil {
			pl.releaseVictims(d, u.pods)
			return err
		}
	}
	pl.Underway.AddVictims(pl.Gangs, pl.holder(d), pods)
	defer func() { pl.releaseNotEvicted(d, pods, evicted) }()
	needed := func() bool { return pl.victimsNeeded(d, f, pods) }
	marked, err := pl.markAll(ctx, pods, ran, len(jobs) > 0)
	if err != nil || marked.anyMarked() && !needed() || marked[:len(u.pods)].allEnded() { // marking takes time
		pl.unmarkAll(ctx, pods, marked)
		return err
	}
	left := pl.evictor.SuspendJobs(ctx, jobs, d.String())
	var errs errorList
	pl.parallel(ctx, len(pods), func(i int) {
		if marked[i] == hasEnded {
			return
		}
		one := evictions.Eviction{Pod: pods[i], Marked: marked[i] == isMarked, Of: ran, Needed: needed,
			LeftToOwner: left.Has(pods[i].UID)}
		if u.owner.IsPod() {
			one.From = f.from[pods[i].UID] // members of a gang are evicted on whatever node they are
		}
		errs.add(pl.evictOne(ctx, d, f, one, evicted))
	})
	switch begun := evicted.anyPod(pods); {
	case !begun:
		pl.unmarkAll(ctx, pods, marked)
	case !u.owner.IsPod():
		pl.tellEvicted(ctx, d, together, left)
		return pl.evictRest(ctx, d, f, u, ran, evicted, left)
	}
	return errors.Join(errs.list()...)
}

// marks are the results of marking the pods of a list.
type marks []markState

type markState int

const (
	// unmarked: it is marked when it is evicted.
	unmarked markState = iota
	isMarked
	// hasEnded: there is nothing left to evict.
	hasEnded
)

func (m marks) anyMarked() bool { return slices.Contains(m, isMarked) }

// allEnded reports whether all have ended on their own: their places are free, and pods that started beside them since
// need not be evicted.
func (m marks) allEnded() bool {
	return !slices.ContainsFunc(m, func(one markState) bool { return one != hasEnded })
}

func (pl *GangPreemption) unmarkAll(ctx context.Context, pods []*v1.Pod, marked marks) {
	pl.parallel(ctx, len(pods), func(i int) {
		if marked[i] == isMarked {
			pl.evictor.Unmark(ctx, pods[i])
		}
	})
}

// markAll marks the pods that are on their nodes by now, as some of so many that go. The bindings of the others are
// called back. A single pod is marked only if that cannot wait until it is evicted.
func (pl *GangPreemption) markAll(ctx context.Context, pods []*v1.Pod, of int, now bool) (marks, error) {
	marked := make(marks, len(pods))
	if len(pods) == 1 && !now {
		return marked, nil // the only pod is marked when it is evicted
	}
	var errs errorList
	pl.parallel(ctx, len(pods), func(i int) {
		if now, ok := pl.podByUID(pods[i].UID); ok {
			pods[i] = now
		}
		if pods[i].Spec.NodeName != "" {
			result, err := pl.evictor.Mark(ctx, pods[i], of)
			if marked[i] = isMarked; err == nil && result != evictions.Ends { // if in doubt it is marked
				marked[i] = hasEnded
			}
			errs.add(err)
		}
	})
	return marked, errors.Join(errs.list()...)
}

// evictRest evicts what is left of a gang that has begun to end: pods whose eviction failed, members that were being
// bound, and those that the Job controller was to delete and has not. It returns once all evicted pods are seen to end,
// and the gang has no pods or, in a new life, its minimum.
func (pl *GangPreemption) evictRest(ctx context.Context, d *demand, f *found, u unit, ran int,
	evicted *evictedPods, left *evictions.LeftToOwner) error {
	pause := recheckInterval
	for {
		together, err := pl.evictor.Together(u.owner, u.pods[0])
		if err != nil {
			return err
		}
		rest, seen := leftOver(together, evicted, u.stay)
		if len(rest) == 0 && seen {
			return nil
		}
		if overdue := pl.evictor.Overdue(left); len(overdue) > 0 {
			klog.FromContext(ctx).Info("Deleting pods of a suspended Job, because the Job controller does not", "victim",
				u.owner.Gang.String(), "pods", len(overdue))
			rest = append(rest, overdue...)
		}
		pl.Underway.AddVictims(pl.Gangs, pl.holder(d), rest)
		var errs errorList
		pl.parallel(ctx, len(rest), func(i int) {
			errs.add(pl.evictOne(ctx, d, f, evictions.Eviction{Pod: rest[i], Marked: pl.evictor.Marked(rest[i]), Of: ran},
				evicted))
		})
		pl.releaseNotEvicted(d, rest, evicted)
		last := errors.Join(errs.list()...)
		if pause = min(2*pause, maxRecheckInterval); last == nil {
			pause = recheckInterval
		}
		select {
		case <-ctx.Done():
			return errors.Join(last, fmt.Errorf("ending gang %s: %w", u.owner.Gang, context.Cause(ctx)))
		case <-pl.clock.After(pause):
		}
	}
}

// leftOver lists the pods on nodes of gangs left with less than their minimum, except those that must stay. seen: no
// evicted pod seems to run on.
func leftOver(together []gangstate.Footprint, evicted *evictedPods,
	stay map[types.UID]bool) (rest []*v1.Pod, seen bool) {
	seen = true
	for _, one := range together {
		var bound []*v1.Pod
		stays := 0
		for _, member := range one.Running {
			if evicted.has(member.Pod.UID) {
				seen = false
				continue
			}
			stays++
			if member.Pod.Spec.NodeName != "" && !stay[member.Pod.UID] {
				bound = append(bound, member.Pod)
			}
		}
		if stays < one.Min {
			rest = append(rest, bound...)
		}
	}
	return rest, seen
}

// union returns the chosen pods and all running pods of their gangs, except those that must stay.
func union(chosen []*v1.Pod, together []gangstate.Footprint, stay map[types.UID]bool) []*v1.Pod {
	pods := append([]*v1.Pod(nil), chosen...)
	known := map[types.UID]bool{}
	for _, pod := range chosen {
		known[pod.UID] = true
	}
	for _, one := range together {
		for _, member := range one.Running {
			if !known[member.Pod.UID] && !stay[member.Pod.UID] {
				known[member.Pod.UID] = true
				pods = append(pods, member.Pod)
			}
		}
	}
	return pods
}

func (e *evictedPods) anyPod(pods []*v1.Pod) bool {
	for _, pod := range pods {
		if e.has(pod.UID) {
			return true
		}
	}
	return false
}
