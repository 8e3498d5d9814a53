package turns

import (
	"time"

	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// Next lets in the job whose turn it is; ok is false if there is none. byPolicy says whether the policy returned the
// job, and has to admit it. Jobs of queues are considered only if queues is set. again is when there may be a job by
// time alone; zero for never.
func (l *Line) Next(now time.Time, queues bool) (next Job, byPolicy, ok bool, again time.Time) {
	l.dropCoverage()
	if until := l.busy(); now.Before(until) {
		return Job{}, false, false, until
	}
	if l.turn.of != nil {
		l.end(l.turn.of)
	}
	l.reconsiderResting(now)
	l.restCovered(now)
	first := l.first(queues)
	j, until := l.chooseNextJob(now, first, queues)
	if j == nil {
		if l.candidates.Len() == 0 {
			l.keptSince, l.turnsInVain = time.Time{}, 0 // all were looked at
		}
		return Job{}, false, false, times.Earlier(until, l.wakeAt)
	}
	if byPolicy = j.phase == in; !byPolicy {
		l.take(j)
		j.phase, j.called = in, false
	}
	l.turn = turn{of: j, since: now, ahead: j != first, byPolicy: byPolicy, changes: l.view.changes}
	return j.Job, byPolicy, true, now.Add(showUp)
}

// KeepsTurn reports whether a job that was let in keeps its turn now that its attempt is about to begin. It does not
// if something has happened meanwhile that brings another job before it: that one did not fit in what was free when
// the job was let in, and may now. The job is a candidate again then. A job that was let in ahead of the first in
// order, by rules 6 and 7, gives back its turn at most once before its attempt. Turns that the policy has admitted are
// kept.
func (l *Line) KeepsTurn(name string, now time.Time, queues bool) bool {
	given := l.turn
	j := given.of
	if j == nil || j.Name != name || given.begun || given.byPolicy || given.changes == l.view.changes || given.ahead &&
		j.gaveBack {
		return true
	}
	l.dropCoverage()
	l.take(j)
	l.enter(j)
	l.reconsiderResting(now)
	l.restCovered(now)
	if l.first(queues || j.Queue != "") != j {
		j.gaveBack = true
		return false
	}
	l.take(j)
	j.phase = in
	l.turn = given
	l.turn.changes = l.view.changes
	return true
}

// busy returns until when a job keeps its turn; zero if no job has one.
func (l *Line) busy() time.Time {
	switch {
	case l.turn.of == nil:
		return time.Time{}
	case l.turn.begun:
		return l.turn.since.Add(longestAttempt)
	default:
		return l.turn.since.Add(showUp)
	}
}

// chooseNextJob returns the job whose turn it is; nil for none, and until when that is so by time alone. first is the
// first in order.
func (l *Line) chooseNextJob(now time.Time, first *job, queues bool) (next *job, until time.Time) {
	if first == nil {
		return nil, time.Time{}
	}
	end := l.kindOf(first).notBefore
	if !first.fresh && first.pauses(l, now) {
		if !queues { // the first of all may be another
			return nil, end
		}
		if l.keptSince.IsZero() {
			l.keptSince = now
		}
		if until := l.keptSince.Add(maxHeadOfLineWait); !now.Before(l.keptSince) && now.Before(until) {
			return nil, times.Earlier(end, until)
		}
		if next = l.insteadOfFirst(now, first, queues); next == nil {
			return nil, times.Earlier(end, now.Add(lookAgain))
		}
		l.keptSince = end
		return next, time.Time{}
	}
	if now.Sub(end) > maxHeadOfLineWait { // nobody has had to wait of late
		l.keptSince = time.Time{}
	}
	switch {
	case l.inVain == first.Name && l.turnsInVain >= maxFailedTurns:
		l.turnsInVain = 0
		next = l.insteadOfFirst(now, first, queues)
	case l.turn.failed && !l.overtaken:
		next = l.longestOverdue(now, first, queues)
	}
	if l.overtaken = next != nil; !l.overtaken {
		next = first
	}
	return next, time.Time{}
}

// pauses reports whether jobs of the kind of a candidate pause. If it was never tried it need not wait for that once it
// is first in order, or overdue.
func (j *job) pauses(l *Line, now time.Time) bool {
	return j.phase == candidate && now.Before(l.kindOf(j).notBefore)
}

// first returns the first job in order that no limit keeps back; nil for none.
func (l *Line) first(queues bool) (first *job) {
	for _, candidates := range [][]*job{l.gangs.candidates.Items, l.singles.candidates.Items} {
		if len(candidates) > 0 && (first == nil || candidates[0].Rank.Compare(first.Rank) < 0) {
			first = candidates[0]
		}
	}
	if !queues {
		return first
	}
	if has, ok := l.policy.First(AllJobs); ok {
		if queued := l.jobOf(has); first == nil || queued.Rank.Compare(first.Rank) < 0 {
			return queued
		}
	}
	return first
}

// insteadOfFirst returns the job that has a turn in place of the first in order: the next in order that no limit or
// pause keeps back, else the one that is overdue the longest; nil for none.
func (l *Line) insteadOfFirst(now time.Time, first *job, queues bool) (second *job) {
	better := func(j *job) bool {
		return j != first && !j.pauses(l, now) && (second == nil || j.Rank.Compare(second.Rank) < 0)
	}
	for _, candidates := range [][]*job{l.gangs.candidates.Items, l.singles.candidates.Items} {
		for _, j := range candidates[:min(3, len(candidates))] { // the second of a heap is one of these
			if better(j) {
				second = j
			}
		}
	}
	if queues {
		if has, ok := l.policy.First(PolicyJobs); ok && has.Name != first.Name {
			if j := l.jobOf(has); better(j) {
				second = j
			}
		}
	}
	if second == nil {
		return l.longestOverdue(now, first, queues)
	}
	return second
}

// jobOf returns a job that the policy has, or a candidate that it was told of.
func (l *Line) jobOf(has Job) *job {
	if j := l.jobs[has.Name]; j != nil && (j.phase == in || j.phase == candidate) {
		return j
	}
	return &job{Job: has, phase: in}
}

// longestOverdue returns the job that is overdue the longest; nil for none. One that was never tried need not wait for
// a pause, but until the first in order was looked at since it came.
func (l *Line) longestOverdue(now time.Time, first *job, queues bool) *job {
	longest := l.candidates.First(func(j *job) bool {
		switch {
		case now.Before(j.overdueAt()):
			return true // and so it is for all after it
		case j == first || j.Queue != "" && !queues:
			return false
		case j.fresh:
			return first.phase != candidate || !first.last.at.Before(j.last.at)
		default:
			return !j.pauses(l, now)
		}
	})
	if longest != nil && !now.Before(longest.overdueAt()) {
		return longest
	}
	if queues {
		if has, ok := l.policy.First(OverdueJobs); ok && has.Name != first.Name {
			return l.jobOf(has)
		}
	}
	return nil
}

// awaitedFailures bounds how many rounds in a row may fail until the next attempt is no longer awaited: a job that
// always fails would be for ever.
const awaitedFailures = 3

// Awaits reports whether a job is being tried, or will be as things are: what is reported about it may not be final.
// So it may be while victims make room for it, and in the first pauses after rounds that failed. until is when it may
// be tried at the earliest, or when the attempt that keeps it from that is over; zero for at once.
func (l *Line) Awaits(name string, now time.Time) (awaits bool, until time.Time) {
	j := l.jobs[name]
	if j == nil {
		return false, time.Time{}
	}
	comes := func(at time.Time) bool {
		return (j.phase == candidate || j.phase == resting && l.due(j, at)) && l.coveredBy(j, now) == nil
	}
	switch {
	case l.turn.of == j:
		if l.turn.begun {
			until = l.busy()
		}
		return true, until
	case j.phase == in:
		return false, time.Time{} // something keeps it waiting
	case comes(now):
		if !j.fresh {
			until = l.kindOf(j).notBefore
		}
		if l.turn.begun {
			until = times.Later(until, l.busy())
		}
		return true, until
	case j.Failures > 0 && j.Failures <= awaitedFailures && comes(times.Later(now, j.NotBefore)):
		// Its plan failed: there is a pause.
		return true, j.NotBefore
	default:
		return l.elsewhere.Making(j.holder()), time.Time{}
	}
}
