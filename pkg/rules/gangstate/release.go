package gangstate

import "time"

// unreserve voids the plan of a group and takes back what its members hold, except
// in gangs that run already: those are past the group's minimum.
func (s *Gangs) unreserve(grp *group) {
	if grp.holding() == 0 {
		return
	}
	for _, g := range grp.gangs {
		if g.hasStarted() {
			continue
		}
		for _, m := range g.members {
			s.unreserveMember(m)
		}
		s.markChanged(g)
	}
	s.admitGroup(grp)
}

// unreserveMember takes from a member the place that it was given and does not use yet.
func (s *Gangs) unreserveMember(m *member) {
	switch m.state {
	case Planned:
		s.unplan(m)
	case Held:
		s.effects.Reject = append(s.effects.Reject, m.uid())
		s.effects.Freed = true
		m.gang.change(m, func() { m.state = Returning })
		m.gang.group.resendAfter = firstResend
	case Returning:
		m.keepsPlace = false
	case Pending, Released, Bound:
	}
}

// unplan takes a member out of its plan. It may be in a cycle that now comes to
// nothing, so it has to be let through again.
func (s *Gangs) unplan(m *member) {
	s.effects.Unhold = append(s.effects.Unhold, m.uid())
	s.effects.Freed = true
	m.gang.change(m, func() { m.state, m.node = Pending, "" })
	m.admitted = false
	s.endTurn(m)
}

// release lets go of a group whose every minimum is held, and reports whether any member went.
func (s *Gangs) release(grp *group, now time.Time) bool {
	if !grp.releasable() {
		return false
	}
	some := grp.countIn(Held) > 0
	for _, g := range grp.gangs {
		s.releaseGang(g)
	}
	grp.clocks = clocks{}
	grp.failures, grp.replans = 0, 0
	for _, g := range grp.gangs {
		s.noteRunning(g, now)
	}
	return some
}

// releaseGang releases the held members of a gang.
func (s *Gangs) releaseGang(g *gang) {
	if g.byState[Held].N == 0 {
		return
	}
	for _, m := range g.sorted(func(m *member) bool { return m.state == Held }) {
		s.releaseMember(m)
	}
	g.failure, g.missed = failure{}, time.Time{}
}

func (s *Gangs) releaseMember(m *member) {
	m.gang.change(m, func() { m.state = Released })
	m.gang.group.resendAfter = firstResend
	s.effects.Release = append(s.effects.Release, m.uid())
}
