package gangstate

import "time"

// A group that comes together is a newcomer until it has been tried once. It is tried at once,
// unless a group before it in rank is due: what has become free may be for that one. Then it has
// its turn when all groups that are due before it have had one, which takes as long as they need;
// and while changes come faster than attempts can be made, that is for ever. So after
// newcomerPatience it is enough that each of those was looked at since the newcomer came, whatever
// has changed after that look. The turns between are theirs, first in rank first, and then its own;
// for that it need not wait out the pause that follows attempts that fail. With one group before it
// that does not fit, costs one second to plan, and is always due, it waits for 2 to 5 s: its
// patience, or the rest of a pause of 4 s and an attempt.

// newcomerPatience is how long a newcomer waits for all groups that are due before it. If something
// changes only now and then, it is enough for those to be tried with what has become free.
const newcomerPatience = 2 * time.Second

// inTurn returns the phase of a group that has come together: it may be tried at once, unless
// another before it in rank is due.
func (s *Gangs) inTurn(grp *group, now time.Time) phase {
	grp.retry = retry{stale: true, fresh: true, at: now}
	if s.outranked(grp, now) {
		return resting
	}
	return ready
}

// outranked reports whether another group before it in rank may be due. One that waits for victims to end counts as
// due; if it is not, the newcomer has its turn next.
func (s *Gangs) outranked(grp *group, now time.Time) bool {
	for other := range s.pump.resting {
		if other != grp && s.pump.due(other, now, nowhere{}) && compareRank(other, grp) < 0 && s.pump.spokenFor(other, now) == nil {
			return true
		}
	}
	return false
}

// nextInPause returns the newcomer that is tried although the share of attempts that fail is used
// up; nil for none.
func (p *pump) nextInPause(now time.Time, elsewhere Elsewhere) *group {
	if way, free := wayOfNewcomer(p.waiting(now, elsewhere), now); free {
		return way
	}
	return nil
}

// wayOfNewcomer returns the group that has to be tried next for the first newcomer in rank to have
// its turn: a group before it that was not looked at since it came; free: it is the newcomer
// itself. It is nil if there is none, or its patience is not over.
func wayOfNewcomer(due []*group, now time.Time) (way *group, free bool) {
	newcomer := first(due, func(grp *group) bool { return grp.retry.fresh })
	if newcomer == nil || now.Sub(newcomer.retry.at) < newcomerPatience {
		return nil, false
	}
	before := first(due, func(grp *group) bool {
		return compareRank(grp, newcomer) < 0 && !grp.retry.at.After(newcomer.retry.at)
	})
	if before != nil {
		return before, false
	}
	return newcomer, true
}
