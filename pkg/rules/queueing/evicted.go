package queueing

import (
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/eviction"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// evictedGang is a gang that was evicted.
type evictedGang struct {
	eviction.Record
	had Vector
	// back: it has been offered since, and asks for itself.
	back bool
}

// SetEvicted sets what a gang had when it was evicted; a record without a queue ends that.
func (b *Book) SetEvicted(gang string, e eviction.Record, now time.Time) {
	before := b.evicted[gang]
	switch {
	case before != nil && before.At.Equal(e.At):
		return // it may be back since
	case e.Queue != "" && e.Counts(now, b.limits.EvictedHold):
		had := Vector{}
		for pool, amount := range e.Requests {
			had.Add(resource.FromList(amount.List()).In(pool), 1) // without amounts that nothing can have
		}
		b.evicted[gang] = &evictedGang{Record: e, had: had}
	case before == nil:
		return
	default:
		delete(b.evicted, gang)
	}
	b.stale = true
}

// expireEvicted ends what has counted for long enough.
func (b *Book) expireEvicted(now time.Time) {
	for gang, e := range b.evicted {
		if !e.Counts(now, b.limits.EvictedHold) {
			delete(b.evicted, gang)
			b.stale = true
		}
	}
}

// comeBack notes which gangs ask for themselves again, of those whose minimum some pods are.
func (b *Book) comeBack(pods []string) {
	oldest := map[string]time.Time{}
	for _, pod := range pods {
		if u := b.usages[pod]; b.evicted[u.Gang] != nil {
			oldest[u.Gang] = times.Earlier(oldest[u.Gang], u.Created)
		}
	}
	for gang, at := range oldest {
		if e := b.evicted[gang]; !e.back && e.IsRemade(true, at) {
			e.back, b.stale = true, true
		}
	}
}

// Awaited returns, by queue, what gangs that were evicted had, without what they have or ask for now: pods of theirs
// that have not ended yet, or that have been made again.
func (b *Book) Awaited() map[string]Vector {
	sums := map[string]Vector{}
	for gang, e := range b.evicted {
		if e.back {
			continue
		}
		rest := Vector{}
		for name, amount := range e.had {
			rest[name] = max(0, amount-b.asked[gang][name])
		}
		resource.AddTo(sums, e.Queue, rest, 1)
	}
	return sums
}
