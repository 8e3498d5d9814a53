package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/eviction"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// lookAgainEvery is the interval of looking whether members of a gang that ends have come to run
// meanwhile, until all that were evicted are seen to end.
const lookAgainEvery = 100 * time.Millisecond

// evictWhole ends a gang, and those that start together with it: what runs of it now, which may be
// more than what was chosen, and what comes to run before all of that is seen to end. All are
// marked before the first is evicted: the process that follows this one finishes what it has begun.
// Where nothing was begun the marks are taken back.
func (pl *GangPreemption) evictWhole(ctx context.Context, d *demand, f *found, u unit, evicted *evictions) error {
	pods, ran := u.pods, 0
	if !u.of.IsPod() {
		together, err := pl.evictor.Together(u.of, u.pods[0])
		if err != nil {
			pl.spare(pods)
			return err
		}
		pods, ran = union(pods, together, u.stay), eviction.OnNodes(together)
	}
	pl.Underway.Begin(pl.Gangs, pl.holder(d), pods)
	defer func() { pl.spareOthers(d, pods, evicted) }()
	needed := func() bool { return pl.needed(d, f, pods) }
	marked, err := pl.markAll(ctx, pods, ran)
	if err != nil || marked.any() && !needed() || marked[:len(u.pods)].allEnded() { // marking takes its time
		pl.unmarkAll(ctx, pods, marked)
		return err
	}
	var errs collected
	pl.each(ctx, len(pods), func(i int) {
		if marked[i] == hasEnded {
			return
		}
		one := eviction.Turn{Pod: pods[i], Marked: marked[i] == isMarked, Of: ran, Needed: needed}
		if u.of.IsPod() {
			one.From = f.from[pods[i].UID] // members of a gang are evicted wherever they are
		}
		errs.add(pl.evictOne(ctx, d, f, one, evicted))
	})
	switch begun := evicted.anyOf(pods); {
	case !begun:
		pl.unmarkAll(ctx, pods, marked)
	case !u.of.IsPod():
		return pl.evictRest(ctx, d, f, u, ran, evicted)
	}
	return errors.Join(errs.list()...)
}

// marks are what came of marking the pods of a list.
type marks []markState

type markState int

const (
	// unmarked: it is marked when it is evicted.
	unmarked markState = iota
	isMarked
	// hasEnded: there is nothing to evict any more.
	hasEnded
)

func (m marks) any() bool { return slices.Contains(m, isMarked) }

// allEnded reports whether all have ended by themselves: their places are free, and pods that came
// to run beside them since need not be evicted.
func (m marks) allEnded() bool {
	return !slices.ContainsFunc(m, func(one markState) bool { return one != hasEnded })
}

func (pl *GangPreemption) unmarkAll(ctx context.Context, pods []*v1.Pod, marked marks) {
	pl.each(ctx, len(pods), func(i int) {
		if marked[i] == isMarked {
			pl.evictor.Unmark(ctx, pods[i])
		}
	})
}

// markAll marks the pods, if there are several, that are on their nodes by now, as some of so many
// that go. The bindings of the others will be called back.
func (pl *GangPreemption) markAll(ctx context.Context, pods []*v1.Pod, of int) (marks, error) {
	marked := make(marks, len(pods))
	if len(pods) == 1 {
		return marked, nil // it is marked when it is evicted
	}
	var errs collected
	pl.each(ctx, len(pods), func(i int) {
		if now, ok := pl.podByUID(pods[i].UID); ok {
			pods[i] = now
		}
		if pods[i].Spec.NodeName != "" {
			result, err := pl.evictor.Mark(ctx, pods[i], of)
			if marked[i] = isMarked; err == nil && result != eviction.Ends { // if in doubt it is marked
				marked[i] = hasEnded
			}
			errs.add(err)
		}
	})
	return marked, errors.Join(errs.list()...)
}

// evictRest evicts what is left of a gang that has begun to end: pods of which the eviction
// failed, and members that were on their way to a node meanwhile. It returns once all that
// were evicted are seen to end, and what runs of the gang is nothing, or a new life of it,
// with its minimum.
func (pl *GangPreemption) evictRest(ctx context.Context, d *demand, f *found, u unit, ran int, evicted *evictions) error {
	ticker := pl.clock.NewTicker(lookAgainEvery)
	defer ticker.Stop()
	var last error
	for {
		together, err := pl.evictor.Together(u.of, u.pods[0])
		if err != nil {
			return err
		}
		rest, seen := leftOver(together, evicted, u.stay)
		if len(rest) == 0 && seen {
			return nil
		}
		pl.Underway.Begin(pl.Gangs, pl.holder(d), rest)
		var errs collected
		pl.each(ctx, len(rest), func(i int) { errs.add(pl.evictOne(ctx, d, f, eviction.Turn{Pod: rest[i], Of: ran}, evicted)) })
		pl.spareOthers(d, rest, evicted)
		last = errors.Join(errs.list()...)
		select {
		case <-ctx.Done():
			return errors.Join(last, fmt.Errorf("ending gang %s: %w", u.of.Gang, context.Cause(ctx)))
		case <-ticker.C():
		}
	}
}

// leftOver lists the pods on nodes of gangs that are left with less than their minimum, except
// those that may not be evicted. seen: none that was evicted seems to run on.
func leftOver(together []gang.Footprint, evicted *evictions, stay map[types.UID]bool) (rest []*v1.Pod, seen bool) {
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

// union returns the pods that were chosen and all that runs of their gangs, except what has to
// stay.
func union(chosen []*v1.Pod, together []gang.Footprint, stay map[types.UID]bool) []*v1.Pod {
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

func (e *evictions) anyOf(pods []*v1.Pod) bool {
	for _, pod := range pods {
		if e.has(pod.UID) {
			return true
		}
	}
	return false
}
