package queueing

import (
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// evictedGang is a gang that was evicted, and is not back.
type evictedGang struct {
	evictionrecord.Record
	had Vector
}

// SetEvicted sets what a gang had when it was evicted; a record without a queue ends that. The record of a gang is
// there until the gang is back: see [gangstate.Facts.IsBack].
func (b *Book) SetEvicted(gang string, e evictionrecord.Record, now time.Time) {
	before := b.evicted[gang]
	switch {
	case before != nil && before.At.Equal(e.At):
		return
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

// IsAwaited reports whether what a gang had when it was evicted counts.
func (b *Book) IsAwaited(gang string) bool { return b.evicted[gang] != nil }

// Awaited returns, by queue, what gangs that were evicted had, without what they have or ask for now: pods of theirs
// that have not ended yet, or that have been made again.
func (b *Book) Awaited() map[string]Vector {
	sums := map[string]Vector{}
	for gang, e := range b.evicted {
		rest := Vector{}
		for name, amount := range e.had {
			rest[name] = max(0, amount-b.asked[gang][name])
		}
		resource.AddTo(sums, e.Queue, rest, 1)
	}
	return sums
}
