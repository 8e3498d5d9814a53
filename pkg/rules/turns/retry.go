package turns

import (
	"time"

	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

const (
	// retryAnyway is when a job that does not fit is tried again even though nothing was seen to happen.
	retryAnyway = time.Minute
	// newcomerPatience is how long a job that was never tried waits for those before it.
	newcomerPatience = time.Second
	// retryShare is the most of the scheduling thread that attempts which place nothing may take while something happens
	// in the cluster all the time: one part in this.
	retryShare = 5
)

// OverdueAt returns when a job was not looked at for too long: since the end of its last attempt, or if it was never
// tried, since it came.
func OverdueAt(since time.Time, tried bool) time.Time {
	if tried {
		return since.Add(retryAnyway)
	}
	return since.Add(newcomerPatience)
}

// rest lets a job rest.
func (l *Line) rest(j *job) {
	j.phase = resting
	l.resting[j] = true
	if j.last.coupled {
		l.coupled++
	}
	l.look = l.look || j.fresh || j.last.changes != j.Changes || j.last.seen != l.view
	l.wakeAt = times.Earlier(l.wakeAt, j.last.at.Add(retryAnyway))
	if !j.NotBefore.IsZero() {
		l.wakeAt = times.Earlier(l.wakeAt, j.NotBefore)
	}
}

// reconsiderResting makes candidates of the jobs that may fit by now. It costs a look at each job that rests, if
// anything has changed.
func (l *Line) reconsiderResting(now time.Time) {
	if !l.look && (l.wakeAt.IsZero() || now.Before(l.wakeAt)) {
		return
	}
	l.look, l.wakeAt = false, time.Time{}
	for j := range l.resting {
		switch {
		case l.due(j, now):
			l.take(j)
			l.enter(j)
			l.restedCovered = false
		case now.Before(j.NotBefore):
			l.wakeAt = times.Earlier(l.wakeAt, j.NotBefore)
		case !j.Blocked:
			l.wakeAt = times.Earlier(l.wakeAt, j.last.at.Add(retryAnyway))
		}
	}
}

// due reports whether a job that rests may fit by now. While victims make room for it, the end of a victim is no
// reason to try it: it needs all that were chosen for it, and what others leave is promised.
func (l *Line) due(j *job, now time.Time) bool {
	a := &j.last
	switch {
	case j.Blocked, now.Before(j.NotBefore):
		return false
	case j.fresh, j.called, a.changes != j.Changes, a.coveredBy != nil && a.coveredBy.void, now.Sub(a.at) >= retryAnyway:
		return true
	case a.coupled && a.seen.moves != l.view.moves:
		return true
	case a.hopeless:
		return a.seen.nodes != l.view.nodes
	case a.seen.withoutEnds() != l.view.withoutEnds():
		return true
	default:
		return a.seen.ends != l.view.ends && !l.elsewhere.Making(j.holder())
	}
}
