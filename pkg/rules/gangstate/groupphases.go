package gangstate

import "time"

// updatePhase brings the group of a gang into the phase that the facts call for. It
// runs after every input that touched the gang.
func (s *Gangs) updatePhase(g *gang, now time.Time) {
	s.markChanged(g)
	grp := g.group
	s.markChanged(grp.gangs[0])
	if len(g.members) == 0 {
		g.missed = time.Time{}
	}
	s.noteRunning(g, now)
	able := s.isComplete(grp)
	for able {
		s.advance(grp, now)
		if !s.release(grp, now) {
			break
		}
		able = s.isComplete(grp) // under OnlyWaiting members that were let go no longer count
	}
	if able {
		grp.setClocks(now)
	} else {
		s.gather(grp, now)
	}
	s.track(grp)
}

// gather ends the round of a group that is not able to go on.
func (s *Gangs) gather(grp *group, now time.Time) {
	if grp.phase != gathering {
		s.enterPhase(grp, gathering, now)
	}
	s.unreserve(grp)
	grp.clocks = clocks{}
}

// noteRunning lets members go alone once their gang runs, and gates them again
// when it no longer does, or while members are being evicted.
func (s *Gangs) noteRunning(g *gang, now time.Time) {
	s.updateStarted(g, now)
	ran, singly := g.hasStarted(), g.admitsSingly()
	changed := ran != g.wasStarted
	if !changed && singly == g.admittedSingly {
		return
	}
	g.wasStarted, g.admittedSingly = ran, singly
	if changed && ran {
		g.missed = time.Time{}
		s.releaseGang(g)
		s.updateStarted(g, now) // more of it run
	}
	s.admitGang(g)
	if changed {
		s.updateAwaiting(g, now)
	}
}

// updateAwaiting looks again at gangs that name g and are not grouped with it.
func (s *Gangs) updateAwaiting(g *gang, now time.Time) {
	for key := range s.naming[g.key] {
		if other := s.gangs[key]; other != nil && other.group != g.group {
			s.updatePhase(other, now)
		}
	}
}

// isComplete reports whether every gang of the group could reach its minimum.
func (s *Gangs) isComplete(grp *group) bool {
	for _, g := range grp.gangs {
		if !g.gathered() {
			return false
		}
		if _, waits := s.awaited(g); waits {
			return false
		}
	}
	return true
}

// advance moves a group that is able.
func (s *Gangs) advance(grp *group, now time.Time) {
	switch need := grp.need(); {
	case need == 0:
		s.afterPlan(grp, now)
	case grp.phase == gathering:
		grp.failures, grp.replans, grp.tried, grp.roomFor = 0, 0, false, ""
		for _, g := range grp.gangs {
			g.failure = failure{}
			if g.need() > 0 {
				g.completed = now
			}
		}
		s.enterPhase(grp, awaiting, now)
	case grp.phase == inTurn:
		if leader := s.members[grp.leader]; leader == nil || !leader.leads() {
			s.letMembersThrough(grp, now)
		}
	case grp.phase == following:
		s.replan(grp, now)
	case grp.phase == awaiting:
		if grp.strict() && grp.tried {
			s.unreserve(grp) // of members that were on their way when the round failed
		}
	}
}

// afterPlan sets the phase of a group that has no member left to place.
func (s *Gangs) afterPlan(grp *group, now time.Time) {
	next := gathering
	if grp.countIn(Planned) > 0 {
		next = following
	}
	if grp.phase != next {
		s.enterPhase(grp, next, now)
	}
}

func (s *Gangs) enterPhase(grp *group, next phase, now time.Time) {
	grp.phase = next
	s.markChanged(grp.gangs[0])
	s.letMembersThrough(grp, now)
}

// letMembersThrough lets through the members that the phase calls for; while inTurn, exactly one.
func (s *Gangs) letMembersThrough(grp *group, now time.Time) {
	grp.leader, grp.visited, grp.sent, grp.resendAfter = "", false, now, firstResend
	if grp.phase == inTurn {
		if leader := grp.pickLeader(); leader != nil {
			grp.leader = leader.uid()
		}
	}
	s.track(grp)
	s.admitGroup(grp)
}

// leads reports whether a member, once let through, would still plan its group.
func (m *member) leads() bool {
	grp := m.gang.group
	return m.eligible() && grp.leader == m.uid() && m.gang.need() > 0 && grp.assembled()
}
