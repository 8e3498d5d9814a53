package gangstate

// admissible reports whether the queue may let a member through.
func (s *Gangs) admissible(m *member) bool {
	g := m.gang
	switch m.state {
	case Pending:
		if !m.eligible() || s.closed {
			return false
		}
		return g.admitsSingly() || (g.group.phase == inTurn && g.group.leader == m.uid())
	case Planned:
		if !s.turns.mayClaim(m) {
			return false
		}
		return g.group.phase == following || g.group.phase == inTurn && g.group.replans > 0 || g.hasStarted()
	default:
		return true // it is past the queue
	}
}

// admit notes whether a member is admissible. A member that becomes so is activated: the queue asks
// only once.
func (s *Gangs) admit(m *member) {
	want := s.admissible(m)
	if want && !m.admitted && (m.state == Pending || m.state == Planned) {
		s.effects.Activate = append(s.effects.Activate, m.pod)
	}
	m.admitted = want
	switch {
	case m.state != Planned:
	case want:
		s.turns.take(m)
	default:
		s.endTurn(m)
	}
}

// readmit is admit for a member whose cycle failed: it has to be
// activated even though it was let through before.
func (s *Gangs) readmit(m *member) {
	m.admitted = false
	s.admit(m)
}

func (s *Gangs) admitGang(g *gang) {
	for _, m := range g.members {
		s.admit(m)
	}
}

func (s *Gangs) admitGroup(grp *group) {
	for _, g := range grp.gangs {
		s.admitGang(g)
	}
}
