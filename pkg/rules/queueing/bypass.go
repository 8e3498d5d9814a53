package queueing

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// missed is a job that did not fit in its turn, or that a ceiling kept from its turn.
type missed struct {
	Job
	// ceiling is the queue whose ceiling is in its way; empty if room is.
	ceiling string
	// passed is how many later jobs were placed since its last reservation ended.
	passed int
	// rounds is how many reservations it has had.
	rounds int
	// since is when it was noticed that other jobs wait for it; zero while none do.
	since time.Time
}

// Limits are the limits that the caller sets.
type Limits struct {
	// Window is how many jobs may have their turn at once.
	Window int
	// MaxBypass is how many jobs may pass one that does not fit; 0 for any number. Once that many have, later jobs that
	// ask for any resource that it asks for wait until it is placed or gone, or until BypassHold is over. If a ceiling
	// keeps it waiting, only jobs under that ceiling do.
	MaxBypass int
	// BypassHold is how long they wait at first. Each time it is twice as long, and twice as many may
	// pass.
	BypassHold time.Duration
	// EvictedHold is how long what an evicted gang had counts as asked for while its pods are made again.
	EvictedHold time.Duration
}

// miss notes that a job did not fit in its turn. A job for which others would have to make way is not waited
// for.
func (b *Book) miss(name string) {
	if j := b.jobs[name]; j != nil && j.phase == Admitted && !j.turn.overLimit {
		b.note(missed{Job: j.Job})
	}
}

func (b *Book) note(one missed) {
	if b.limits.MaxBypass == 0 {
		return
	}
	if m := b.missed[one.Name]; m != nil {
		m.Job, m.ceiling = one.Job, one.ceiling
		return
	}
	b.missed[one.Name] = &one
}

// pass notes the jobs that a ceiling keeps waiting while a job that comes after them goes under it. If there is no
// ceiling it costs nothing, otherwise a look at each queue under it.
func (b *Book) pass(j *job, now time.Time) {
	path := b.queues[j.Queue].path
	limited := slices.ContainsFunc(path, func(at string) bool { return len(b.queues[at].spec.Capability) > 0 })
	if !limited || b.limits.MaxBypass == 0 {
		return
	}
	for _, q := range b.queues {
		if !b.serves(q) || len(q.waiting) == 0 || !slices.Contains(q.path, path[len(path)-1]) {
			continue
		}
		_, blocked := b.first(q, selection{others: true, now: now})
		for _, m := range blocked {
			if b.isPassedBy(m, j) {
				b.note(*m)
			}
		}
	}
}

// mostRounds bounds the doubling.
const mostRounds = 10

// letOff lets a job be passed by twice as many as before, until it is waited for again.
func (m *missed) letOff() {
	m.passed, m.since, m.rounds = 0, time.Time{}, min(m.rounds+1, mostRounds)
}

// expireReservations lets off jobs that others have waited for long enough.
func (b *Book) expireReservations(now time.Time) {
	for _, m := range b.missed {
		switch {
		case !b.waited(m):
			m.since = time.Time{}
		case m.since.IsZero():
			m.since = now
		case now.Sub(m.since) > b.limits.BypassHold<<m.rounds:
			m.letOff()
		}
	}
}

// waited reports whether others wait for a job that was missed.
func (b *Book) waited(m *missed) bool { return m.passed >= b.limits.MaxBypass<<m.rounds }

// placed counts a job that was placed against those that it passed.
func (b *Book) placed(j *job) {
	delete(b.missed, j.Name)
	for _, m := range b.missed {
		if b.isPassedBy(m, j) {
			m.passed++
		}
	}
}

// isPassedBy reports whether a missed job is passed by another one that is placed: that comes after it, asks for any of
// what it asks for, and is under the ceiling that keeps it waiting.
func (b *Book) isPassedBy(m *missed, j *job) bool {
	if j.Name == m.Name || j.Priority > m.Priority || j.Priority == m.Priority && !m.Created.Before(j.Created) {
		return false
	}
	if m.ceiling != "" && !b.above(j.queues(), m.ceiling) {
		return false
	}
	return slices.ContainsFunc(m.Options, func(need Needs) bool { return asksOf(need, j) })
}

// asksOf reports whether a job asks for any of some needs.
func asksOf(need Needs, j *job) bool {
	asked := need.Total()
	return slices.ContainsFunc(j.needs, func(name v1.ResourceName) bool { return asked[name] > 0 })
}

// waitsFor returns, in words, which job a job has to wait for; empty for none. A job for which pods were evicted waits
// for none: they would have ended for nothing.
func (b *Book) waitsFor(j *job) string {
	if b.madeWay(j) {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(b.missed)) {
		m := b.missed[name]
		if b.waited(m) && b.isPassedBy(m, j) && slices.ContainsFunc(b.asNow(m), func(one *job) bool {
			return asksOf(one.need(), j) && b.couldFit(m, one) && b.entitled(one, j)
		}) {
			return fmt.Sprintf("waiting behind %s, which does not fit; %d later jobs were already placed", m.Title, m.passed)
		}
	}
	return ""
}

// madeWay reports whether all that a job asks for is promised to it, and all pods that made way for it have
// ended.
func (b *Book) madeWay(j *job) bool {
	promised := b.promised[j.Name]
	if promised == nil || b.makesWay(j) {
		return false
	}
	for queue, need := range j.need() {
		for name, amount := range need {
			if amount > promised[queue][name] {
				return false
			}
		}
	}
	return true
}

// asNow returns a missed job as it is now, with each of its options.
func (b *Book) asNow(m *missed) []*job {
	current := b.active(m.Name)
	if current != nil && current.phase == Admitted {
		return []*job{current} // it counts as used already
	}
	offered := m.Job
	if current != nil {
		offered = current.Job
	}
	all := make([]*job, len(offered.Options))
	for at := range all {
		all[at] = newJob(offered)
		all[at].take(at)
	}
	return all
}

// entitled reports whether a job has to wait for one of another queue: only if that queue, and those above it that
// are not above the job too, have a right to what is waited for, as far as it is contested. Otherwise it would be
// taken back at once.
func (b *Book) entitled(one, j *job) bool {
	for _, queue := range one.queues() {
		for _, at := range b.Path(queue) {
			if b.above(j.queues(), at) {
				break
			}
			if b.overshoots(one, at) {
				return false
			}
		}
	}
	return true
}

// overshoots reports whether a queue would have more than it deserves with a job, of anything that is contested.
func (b *Book) overshoots(j *job, queue string) bool {
	s := b.Shares()[queue]
	return slices.ContainsFunc(j.needs, func(name v1.ResourceName) bool {
		used := b.queues[queue].used[name] - b.has(j.Name, queue, name) + b.at(j.need(), queue, name)
		return s.Contested[name] && used > s.Deserved[name]
	})
}

// couldFit reports whether it helps to wait for a job. It does not if the job waits for the share of its queue,
// or is larger than the whole cluster.
func (b *Book) couldFit(m *missed, one *job) bool {
	for name, need := range one.need().Total() {
		if need > b.total[name] {
			return false
		}
	}
	if b.Shut(one.queues()...).Reason != "" {
		return false
	}
	if one.phase == Admitted {
		return true // it counts as used already
	}
	bound, over := b.exceeded(one)
	return !over || bound.Reason == Capability && bound.Queue == m.ceiling
}
