package gang

import (
	"fmt"
	"time"
)

const (
	// nudgeAfter is how long members may take to do what they were told before
	// they are told again; from then on it doubles up to retryAnyway, for they may
	// have heard and be stuck. They may have been in a cycle when they were let
	// through, or not yet waiting when they were released or rejected, and then
	// nobody heard.
	nudgeAfter = time.Second
	// retryAnyway is when a group that does not fit is tried again even though
	// nothing was seen to happen.
	retryAnyway = time.Minute
)

// track notes whether time can move the group.
func (s *Gangs) track(grp *group) {
	if grp.phase == gathering && grp.held.IsZero() && grp.countIn(Planned)+grp.countIn(Released)+grp.countIn(Returning) == 0 {
		delete(s.timed, grp)
		return
	}
	s.timed[grp] = true
}

// setClock begins the wait time where something is held, and ends it where
// nothing is any more.
func (g *group) setClock(now time.Time) {
	holding := g.holding() > 0
	switch _, set := g.waitTime(); {
	case holding && g.held.IsZero():
		g.held = now
	case !holding && !(set && g.strict()):
		g.held = time.Time{}
	}
}

// Tick takes in that time has passed.
func (s *Gangs) Tick(now time.Time) Effects {
	for grp := range s.timed {
		s.tick(grp, now)
	}
	return s.take()
}

func (s *Gangs) tick(grp *group, now time.Time) {
	if wait, _ := grp.waitTime(); !grp.held.IsZero() && now.Sub(grp.held) >= wait {
		s.expire(grp, now)
		return
	}
	if now.Sub(grp.nudged) >= grp.patience {
		s.nudge(grp, now)
	}
	if grp.phase == resting && s.due(grp, now) {
		s.enterPhase(grp, ready, now)
	}
}

// due tells whether a group that rests may be tried again: its pause is over, and
// something has happened that could help.
func (s *Gangs) due(grp *group, now time.Time) bool {
	if now.Before(grp.notBefore) {
		return false
	}
	return grp.stale || grp.seen != s.changes || now.Sub(grp.since) >= retryAnyway
}

// nudge repeats what members were told and have not done yet.
func (s *Gangs) nudge(grp *group, now time.Time) {
	grp.nudged, grp.patience = now, min(max(2*grp.patience, nudgeAfter), retryAnyway)
	for _, g := range grp.gangs {
		for _, m := range g.members {
			switch {
			case m.admitted && (m.state == Planned || m.state == Pending && grp.leader == m.uid()):
				s.effects.Activate = append(s.effects.Activate, m.pod)
			case m.state == Returning:
				s.effects.Reject = append(s.effects.Reject, m.uid())
			case m.state == Released && m.waiting:
				s.effects.Release = append(s.effects.Release, m.uid())
			}
		}
	}
}

// expire gives everything back and marks who waited; nobody of them is tried
// again until the user acts (seed 002, WaitTime).
func (s *Gangs) expire(grp *group, now time.Time) {
	wait, _ := grp.waitTime()
	for _, g := range grp.gangs {
		if g.satisfied() {
			continue
		}
		for _, m := range g.sorted(func(m *member) bool { return m.state != Bound && m.state != Released && !m.expired }) {
			g.change(m, func() { m.expired = true })
			s.effects.Expire = append(s.effects.Expire, m.pod)
		}
		g.failure = fmt.Sprintf("gang %q did not reach its minimum of %d members within %s of holding the first", g.key, g.spec.Min, wait)
	}
	s.giveBack(grp)
	for _, g := range grp.gangs {
		s.settle(g, now)
	}
}
