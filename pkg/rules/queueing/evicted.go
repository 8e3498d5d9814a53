package queueing

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// Evicted is what a gang had in its queue when it was evicted. Until its pods have been made again its queue asks for
// that. It is the value of [v1alpha1.EvictedAnnotation] on the PodGroup of the gang, so a restart does not lose it.
type Evicted struct {
	// At is when it was evicted, in seconds, as the creation of pods.
	At time.Time `json:"at"`
	// Scheduler is the profile that its pods name, and Queue their queue.
	Scheduler string `json:"scheduler"`
	Queue     string `json:"queue"`
	// Job is the Job that made the first of them; empty for none.
	Job string `json:"job,omitempty"`
	// Requests are what they had, by pool of nodes: cpu in thousandths, anything else in whole units. They are numbers,
	// since users may write the annotation, too, and there are quantities that take minutes to read.
	Requests map[string]Vector `json:"requests"`
}

// NewEvicted returns what some pods of a gang had in all.
func NewEvicted(at time.Time, scheduler, queue string, had Vector) Evicted {
	return Evicted{At: at.UTC().Truncate(time.Second), Scheduler: scheduler, Queue: queue, Requests: had.ByPool()}
}

// ReadEvicted reads the value of the annotation. It returns the zero value if there is none, or it cannot be read.
func ReadEvicted(value string) (e Evicted) {
	if json.Unmarshal([]byte(value), &e) != nil {
		return Evicted{}
	}
	return e
}

// Annotation returns the value of the annotation.
func (e Evicted) Annotation() (string, error) {
	value, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("encoding the eviction of a gang: %w", err)
	}
	return string(value), nil
}

// Counts reports whether it still counts, if it does for so long. The time may be that of another clock.
func (e Evicted) Counts(now time.Time, hold time.Duration) bool { return now.Sub(e.At).Abs() < hold }

// IsBack reports whether a gang is there again, and asks for itself: it has its minimum, of members of which the oldest
// was created since it was evicted.
func (e Evicted) IsBack(minimum bool, oldest time.Time) bool { return minimum && !oldest.Before(e.At) }

// evictedGang is a gang that was evicted.
type evictedGang struct {
	Evicted
	had Vector
	// back: it has been offered since, and asks for itself.
	back bool
}

// SetEvicted sets what a gang had when it was evicted; the zero value ends that.
func (b *Book) SetEvicted(gang string, e Evicted, now time.Time) {
	before := b.evicted[gang]
	switch {
	case before != nil && before.At.Equal(e.At):
		return // it may be back since
	case e.Counts(now, b.limits.EvictedHold):
		had := Vector{}
		for pool, amount := range e.Requests {
			had.Add(resource.FromList(amount.List()).In(pool), 1) // without amounts that nothing can have
		}
		b.evicted[gang] = &evictedGang{Evicted: e, had: had}
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
		if e := b.evicted[gang]; !e.back && e.IsBack(true, at) {
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
