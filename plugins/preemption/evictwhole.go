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

// evictWhole ends a gang for a preemption, and those that start together with it: the pods that run now, possibly more
// than were chosen, and those that start before all of these are seen to end. It marks all before it evicts the first,
// so that the next process can finish. If it evicts none, it takes the marks back. Jobs that ask for it are suspended:
// the Job controller deletes their pods.
func (e *execution) evictWhole(ctx context.Context, p *evictions.Preemption, u loss) error {
	pods := u.victims
	defer func() { e.releaseVictims(pods) }()
	together, err := e.evictor.Together(u.Of)
	if err != nil {
		return err
	}
	pods = union(u.victims, together, u.stay)
	ran := evictions.OnNodes(together)
	jobs, err := e.evictor.WholeJobs(together, pods)
	if err != nil {
		return err
	}
	e.Underway.AddVictims(e.Gangs, e.f.preemption, pods)
	marked, err := e.markAll(ctx, pods, ran)
	// If all that were chosen have ended on their own, their places are free: pods that started beside them since need not
	// be evicted.
	allEnded := !slices.ContainsFunc(marked[:len(u.victims)], func(one markState) bool { return one != hasEnded })
	if slices.Contains(marked, isMarked) { // which takes time
		p = e.Underway.NeededBy(pods)
	}
	if err != nil || allEnded || p == nil {
		e.unmarkAll(ctx, pods, marked)
		return err
	}
	records := e.recordEvictions(ctx, p, together)
	left := e.evictor.SuspendJobs(ctx, jobs, p.Preemptor)
	// Once pods are deleted, it is not known whether the Job has counted them.
	failing := e.failingJobs(ctx, together, left)
	errs := evictions.InParallel(ctx, len(pods), func(i int) error {
		if marked[i] == hasEnded {
			return nil
		}
		return e.evictOne(ctx, p, &u, evictions.Eviction{Pod: pods[i], Marked: marked[i] == isMarked, Of: ran,
			Needed:      func() bool { return e.Underway.NeededBy(pods) != nil },
			LeftToOwner: left.Has(pods[i].UID)}) // on whatever node it is
	})
	if !slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return e.hasEvicted(pod.UID) }) {
		e.unmarkAll(ctx, pods, marked)
		e.dropRecords(ctx, together)
		return errors.Join(errs...)
	}
	e.tellEvicted(ctx, p, together, records, left, failing)
	return e.evictRest(ctx, p, u, ran, left)
}

// markState is the result of marking a pod.
type markState int

const (
	// unmarked: it is marked when it is evicted.
	unmarked markState = iota
	isMarked
	// hasEnded: there is nothing left to evict.
	hasEnded
)

func (e *execution) unmarkAll(ctx context.Context, pods []*v1.Pod, marked []markState) {
	evictions.InParallel(ctx, len(pods), func(i int) error {
		if marked[i] == isMarked {
			e.evictor.Unmark(ctx, pods[i])
		}
		return nil
	})
}

// markAll marks the pods that are on their nodes by now, as some of so many that go. The bindings of the others are
// called back.
func (e *execution) markAll(ctx context.Context, pods []*v1.Pod, of int) ([]markState, error) {
	marked := make([]markState, len(pods))
	errs := evictions.InParallel(ctx, len(pods), func(i int) error {
		if now, ok := e.evictor.Pod(pods[i].UID); ok {
			pods[i] = now
		}
		if pods[i].Spec.NodeName == "" {
			return nil
		}
		result, err := e.evictor.Mark(ctx, pods[i], of)
		if marked[i] = isMarked; err == nil && result != evictions.Ends { // if in doubt it is marked
			marked[i] = hasEnded
		}
		return err
	})
	return marked, errors.Join(errs...)
}

// evictRest evicts what is left of a gang that has begun to end: pods whose eviction failed, members that were being
// bound, and those that the Job controller was to delete and has not. It returns once all evicted pods are seen to end,
// and the gang has no pods or, in a new life, its minimum.
func (e *execution) evictRest(ctx context.Context, p *evictions.Preemption, u loss, ran int,
	left *evictions.LeftToOwner) error {
	pause := recheckInterval
	for {
		together, err := e.evictor.Together(u.Of)
		if err != nil {
			return err
		}
		rest, seen := e.leftOver(together, u.stay)
		if len(rest) == 0 && seen {
			return nil
		}
		if overdue := e.evictor.Overdue(left); len(overdue) > 0 {
			klog.FromContext(ctx).Info("Deleting pods of a suspended Job, because the Job controller does not", "victim",
				u.Of.Gang.String(), "pods", len(overdue))
			rest = append(rest, overdue...)
		}
		e.Underway.AddVictims(e.Gangs, e.f.preemption, rest)
		last := errors.Join(evictions.InParallel(ctx, len(rest), func(i int) error {
			return e.evictOne(ctx, p, &u, evictions.Eviction{Pod: rest[i], Marked: e.evictor.Marked(rest[i]), Of: ran})
		})...)
		e.releaseVictims(rest)
		if pause = min(2*pause, maxRecheckInterval); last == nil {
			pause = recheckInterval
		}
		select {
		case <-ctx.Done():
			e.Underway.ReleaseVictims(e.f.preemption, left.Pods()...)
			return errors.Join(last, fmt.Errorf("ending gang %s: %w", u.Of.Gang, context.Cause(ctx)))
		case <-e.clock.After(pause):
		}
	}
}

// leftOver lists the pods on nodes of gangs left with less than their minimum, except those that must stay. seen: no
// evicted pod seems to run on.
func (e *execution) leftOver(together []gangstate.RunningGang, stay map[types.UID]bool) (rest []*v1.Pod, seen bool) {
	seen = true
	for _, one := range together {
		var bound []*v1.Pod
		stays := 0
		for _, member := range one.Running {
			if e.hasEvicted(member.Pod.UID) {
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
func union(chosen []*v1.Pod, together []gangstate.RunningGang, stay map[types.UID]bool) []*v1.Pod {
	pods := slices.Clone(chosen)
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
