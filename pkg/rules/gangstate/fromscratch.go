package gangstate

// A NonStrict group keeps what it got, and waits for the rest. That may be in a domain without more room, or on nodes
// that its other members need, while there is room for all of it elsewhere. So an attempt that fails is followed by one
// from scratch. The group gives back what it held only if that one is complete, or if a place that it held is lost.

// FromScratch returns what an attempt would be if the group held nothing that plans gave it; nil if it holds
// nothing such.
func (s *Gangs) FromScratch(a *Attempt) *Attempt {
	leader := s.members[a.Leader]
	if leader == nil {
		return nil
	}
	grp := leader.gang.group
	if grp.strict() || !grp.isOf(a) || grp.waiting(Planned) == 0 {
		return nil
	}
	fresh := *a
	fresh.Gangs = grp.newAttempt(true).Gangs
	return &fresh
}

// releasePlans gives back what plans gave to a group, for one that begins from scratch.
func (s *Gangs) releasePlans(grp *group) {
	for _, g := range grp.gangs {
		if g.hasStarted() {
			continue
		}
		for _, m := range g.members {
			if m.state == Planned {
				s.unplan(m)
			}
		}
	}
}
