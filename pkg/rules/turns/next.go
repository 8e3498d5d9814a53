package turns

import (
	"cmp"
	"slices"
	"time"
)

// Next lets in the job whose turn it is; ok is false if there is none. byPolicy says whether the policy returned the job,
// and has to admit it. Jobs of queues are considered only if queues is set. again is when there may be a job by time alone;
// zero for never.
func (r *Room) Next(now time.Time, elsewhere Elsewhere, queues bool) (next Job, byPolicy, ok bool, again time.Time) {
	r.listen(elsewhere)
	if until := r.busy(); now.Before(until) {
		return Job{}, false, false, until
	}
	if r.turn.of != nil {
		r.end(r.turn.of)
	}
	r.update(now, elsewhere)
	first := r.first(queues)
	j, late, until := r.choose(now, first, queues)
	if j == nil {
		if len(r.candidates) == 0 {
			r.turnsInVain = 0 // all were looked at
		}
		return Job{}, false, false, earliest(until, r.wakeAt)
	}
	if byPolicy = j.phase == in; !byPolicy {
		j.ahead = j != first
		r.take(j)
		j.phase, j.called = in, false
	}
	r.turn = turn{of: j, since: now, late: late, byPolicy: byPolicy, changes: r.view.changes}
	return j.Job, byPolicy, true, now.Add(showUp)
}

// Keeps reports whether a job that was let in keeps its turn now that its attempt is about to begin. It does not if
// something has happened meanwhile that brings another job before it: that one did not fit in what was free when the job
// was let in, and may now. The job is a candidate again then. A job that goes ahead of the first in order, by rules 5 to 7,
// gives its turn back once until it is tried. Turns that the policy has admitted are kept.
func (r *Room) Keeps(name string, now time.Time, elsewhere Elsewhere, queues bool) bool {
	given := r.turn
	j := given.of
	if j == nil || j.Name != name || given.begun || given.byPolicy || given.changes == r.view.changes || j.ahead && j.gaveBack {
		return true
	}
	r.listen(elsewhere)
	r.take(j)
	r.enter(j)
	r.update(now, elsewhere)
	if r.first(queues || j.Queue != "") != j {
		j.gaveBack = true
		return false
	}
	r.take(j)
	j.phase = in
	r.turn = given
	r.turn.changes = r.view.changes
	return true
}

// update brings up to date which jobs are candidates.
func (r *Room) update(now time.Time, elsewhere Elsewhere) {
	r.wake(now, elsewhere)
	r.restCovered(now, elsewhere)
	r.announce()
}

// restCovered lets the candidates rest whose attempts would fail. It costs a look at each, after an attempt that failed.
func (r *Room) restCovered(now time.Time, elsewhere Elsewhere) {
	if r.restedCovered || len(r.failed) == 0 {
		return
	}
	r.restedCovered = true
	for j := range r.candidates {
		if m := r.coveredBy(j, now); m != nil && !elsewhere.Promised(j.holder()) {
			r.take(j)
			j.last.seen, j.last.at, j.last.coveredBy, j.fresh = r.view, now, m, false
			r.rest(j)
		}
	}
}

// announce tells the policy of the jobs that have become candidates and still are.
func (r *Room) announce() {
	var jobs []Job
	for _, j := range r.entered {
		if j.phase == candidate && !j.announced && r.jobs[j.Name] == j {
			j.announced = true
			jobs = append(jobs, j.Job)
		}
	}
	if r.entered = nil; len(jobs) > 0 {
		r.policy.AddCandidates(jobs)
	}
}

// busy returns until when a job keeps its turn; zero if no job has one.
func (r *Room) busy() time.Time {
	switch {
	case r.turn.of == nil:
		return time.Time{}
	case r.turn.begun:
		return r.turn.since.Add(longestAttempt)
	default:
		return r.turn.since.Add(showUp)
	}
}

// listen stops failed attempts from covering others once room is made for their jobs: a preemptor finds victims that the next
// one may find, too.
func (r *Room) listen(elsewhere Elsewhere) {
	for _, alike := range r.failed {
		for _, m := range alike {
			if !m.void && (elsewhere.Making(m.holder) || elsewhere.Promised(m.holder)) {
				m.void, r.look = true, true
			}
		}
	}
}

// wake makes candidates of the jobs that may fit by now. It costs a look at each job that rests, if anything has changed.
func (r *Room) wake(now time.Time, elsewhere Elsewhere) {
	if !r.look && (r.wakeAt.IsZero() || now.Before(r.wakeAt)) {
		return
	}
	r.look, r.wakeAt = false, time.Time{}
	for j := range r.resting {
		switch {
		case r.due(j, now, elsewhere):
			r.take(j)
			r.enter(j)
			r.restedCovered = false
		case now.Before(j.NotBefore):
			r.wakeAt = earliest(r.wakeAt, j.NotBefore)
		case !j.Blocked:
			r.wakeAt = earliest(r.wakeAt, j.last.at.Add(retryAnyway))
		}
	}
}

// due reports whether a job that rests may fit by now. While victims make room for it, the end of a victim is no reason
// to try it: it needs all that were chosen for it, and what others leave is promised.
func (r *Room) due(j *job, now time.Time, elsewhere Elsewhere) bool {
	a := &j.last
	switch {
	case j.Blocked, now.Before(j.NotBefore):
		return false
	case j.fresh, j.called, a.changes != j.Changes, a.coveredBy != nil && a.coveredBy.void, now.Sub(a.at) >= retryAnyway:
		return true
	case a.coupled && a.seen.moves != r.view.moves:
		return true
	case a.hopeless:
		return a.seen.nodes != r.view.nodes
	case a.seen.withoutEnds() != r.view.withoutEnds():
		return true
	default:
		return a.seen.ends != r.view.ends && !elsewhere.Making(j.holder())
	}
}

// coveredBy returns the failed attempt which shows that one of a job would fail; nil for none.
func (r *Room) coveredBy(j *job, now time.Time) *failedAttempt {
	if j.last.changes != j.Changes {
		return nil
	}
	for _, m := range r.failed[j.last.shape.Key] {
		if m.job != j.Name && m.why == j.last.why && !m.void && (m.kept || j.Strict) && !m.old(now) && m.rank.Compare(j.Rank) <= 0 && j.last.shape.asksNoLessThan(m.shape) {
			return m
		}
	}
	return nil
}

// choose returns the job whose turn it is, and whether that is because it was not looked at for too long; nil for none,
// and until when that is so by time alone. first is the first in order.
func (r *Room) choose(now time.Time, first *job, queues bool) (next *job, late bool, until time.Time) {
	if first == nil {
		return nil, false, time.Time{}
	}
	if first.pauses(r, now) {
		end := first.pauseEnds(r)
		if end.Sub(now) <= strictPause {
			return nil, false, end
		}
		if other := r.meanwhile(now, first, queues); other != nil {
			return other, false, time.Time{}
		}
		return nil, false, earliest(end, now.Add(lookAgain))
	}
	if r.inVain == first.Name && r.turnsInVain >= mostInVain {
		r.turnsInVain = 0
		if other := r.second(now, first, queues); other != nil {
			return other, false, time.Time{}
		}
	}
	if r.turn.failed && !r.turn.late {
		if other := r.overdue(now, first, queues); other != nil {
			return other, true, time.Time{}
		}
	}
	return first, false, time.Time{}
}

// pauses reports whether a job has to wait for the end of a pause.
func (j *job) pauses(r *Room, now time.Time) bool {
	return j.phase == candidate && !j.fresh && now.Before(j.pauseEnds(r))
}

// pauseEnds returns when the last pause of jobs of its kind ends.
func (j *job) pauseEnds(r *Room) time.Time {
	if j.Single {
		return r.singlesNotBefore
	}
	return r.notBefore
}

// meanwhile returns the job that has its turn while the first in order waits for the end of a pause: the first of those
// that the policy has and of single pods, or the one that came first of those that were never tried, if the first in order
// was looked at since; nil for none.
func (r *Room) meanwhile(now time.Time, first *job, queues bool) (next *job) {
	if queues && r.policy != nil {
		if has, ok := r.policy.First(Had); ok {
			next = r.had(has)
		}
	}
	if singles := r.singles.Items; len(singles) > 0 && !singles[0].pauses(r, now) && (next == nil || singles[0].Rank.Compare(next.Rank) < 0) {
		next = singles[0]
	}
	if next != nil {
		return next
	}
	r.lookForLate(now)
	for _, j := range r.late {
		if j.isLate(r, now) && j.fresh && (j.Queue == "" || queues) && !first.last.at.Before(j.came) {
			return j
		}
	}
	return nil
}

// first returns the first job in order that no limit keeps back; nil for none.
func (r *Room) first(queues bool) (first *job) {
	for _, candidates := range [][]*job{r.gangs.Items, r.singles.Items} {
		if len(candidates) > 0 && (first == nil || candidates[0].Rank.Compare(first.Rank) < 0) {
			first = candidates[0]
		}
	}
	if !queues || r.policy == nil {
		return first
	}
	if has, ok := r.policy.First(All); ok {
		if queued := r.had(has); first == nil || queued.Rank.Compare(first.Rank) < 0 {
			return queued
		}
	}
	return first
}

// second returns the first job in order after the first one that no limit or pause keeps back; nil for none.
func (r *Room) second(now time.Time, first *job, queues bool) (second *job) {
	better := func(j *job) bool {
		return j != first && !j.pauses(r, now) && (second == nil || j.Rank.Compare(second.Rank) < 0)
	}
	for _, candidates := range [][]*job{r.gangs.Items, r.singles.Items} {
		for _, j := range candidates[:min(3, len(candidates))] { // the second of a heap is one of these
			if better(j) {
				second = j
			}
		}
	}
	if queues && r.policy != nil {
		if has, ok := r.policy.First(Had); ok && has.Name != first.Name && better(r.had(has)) {
			second = r.had(has)
		}
	}
	return second
}

// had returns a job that the policy has, or a candidate that it was told of.
func (r *Room) had(has Job) *job {
	if j := r.jobs[has.Name]; j != nil && (j.phase == in || j.phase == candidate) {
		return j
	}
	return &job{Job: has, phase: in}
}

// overdue returns the job that was not looked at for the longest time, if that is too long; nil for none. One that was
// never tried has to wait until the first in order was looked at since it came.
func (r *Room) overdue(now time.Time, first *job, queues bool) *job {
	r.lookForLate(now)
	for _, j := range r.late {
		if j.isLate(r, now) && j != first && (j.Queue == "" || queues) && !j.pauses(r, now) &&
			(!j.fresh || first.phase != candidate || !first.last.at.Before(j.came)) {
			return j
		}
	}
	if queues && r.policy != nil {
		if has, ok := r.policy.First(Late); ok && has.Name != first.Name {
			return r.had(has)
		}
	}
	return nil
}

// lookForLate searches for candidates that were not looked at for too long, longest first, if that was not done a moment
// ago.
func (r *Room) lookForLate(now time.Time) {
	if now.Sub(r.lateAt) < lookAgain {
		return
	}
	r.late, r.lateAt = r.late[:0], now
	for j := range r.candidates {
		if j.overdue(now) {
			r.late = append(r.late, j)
		}
	}
	slices.SortFunc(r.late, func(a, b *job) int {
		return cmp.Or(a.waitsSince().Compare(b.waitsSince()), a.Rank.Compare(b.Rank), cmp.Compare(a.Name, b.Name))
	})
}

// isLate reports whether a job that was late a moment ago still is.
func (j *job) isLate(r *Room, now time.Time) bool {
	return j.phase == candidate && j.overdue(now) && r.jobs[j.Name] == j
}

// awaitedFailures bounds how many rounds in a row may fail until the next attempt is not awaited any more: a job that
// always fails would be for ever.
const awaitedFailures = 3

// Awaits reports whether a job is being tried, or will be as things are: what is reported about it may not be final. So
// it may be while victims make room for it, and in the first pauses after rounds that failed. until is when it may be
// tried at the earliest, or when the attempt that keeps it from that is over; zero for at once.
func (r *Room) Awaits(name string, now time.Time, elsewhere Elsewhere) (awaits bool, until time.Time) {
	j := r.jobs[name]
	if j == nil {
		return false, time.Time{}
	}
	comes := func(at time.Time) bool {
		return (j.phase == candidate || j.phase == resting && r.due(j, at, elsewhere)) && r.coveredBy(j, now) == nil
	}
	switch {
	case r.turn.of == j:
		if r.turn.begun {
			until = r.busy()
		}
		return true, until
	case j.phase == in:
		return false, time.Time{} // something keeps it waiting
	case comes(now):
		if !j.fresh {
			until = j.pauseEnds(r)
		}
		if r.turn.begun {
			until = later(until, r.busy())
		}
		return true, until
	case j.Failures > 0 && j.Failures <= awaitedFailures && comes(later(now, j.NotBefore)): // its plan failed: there is a pause
		return true, j.NotBefore
	default:
		return elsewhere.Making(j.holder()), time.Time{}
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest returns the earlier of two times, of which zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
