package gangstate

// A NonStrict group keeps what it got, and waits for the rest. That may be in a domain without more room, or on nodes
// that its other members need, while there is room for all of it elsewhere. So an attempt that fails is followed by one
// that begins afresh. Only if that one is complete, the group lets go of what it had.

// Afresh returns what an attempt would be if the group held nothing that plans gave it; nil if it holds
// nothing such.
func (s *Gangs) Afresh(a *Attempt) *Attempt {
	leader := s.members[a.Leader]
	if leader == nil {
		return nil
	}
	grp := leader.gang.group
	if grp.strict() || !grp.isOf(a) || grp.waiting(Planned) == 0 {
		return nil
	}
	fresh := &Attempt{Group: a.Group, Leader: a.Leader}
	for _, g := range grp.gangs {
		need := g.wants()
		if !g.goesAlone() && g.count[Planned] > 0 {
			need = g.wantsAfresh(need)
		}
		fresh.Gangs = append(fresh.Gangs, need)
	}
	return fresh
}

// wantsAfresh returns what an attempt has to know of a gang, as need does, if nothing were planned of it.
func (g *gang) wantsAfresh(need Need) Need {
	need.MinByRole = g.lack(func(r *roleCount) int { return -r.planned })
	roles := 0
	for _, n := range need.MinByRole {
		roles += n
	}
	need.Min = max(0, g.spec.Min-(g.have()-g.count[Planned]), roles)
	need.Placed = nil
	for _, m := range g.sorted((*member).placed) {
		if m.state != Planned {
			need.Placed = append(need.Placed, Placed{Pod: m.pod, Node: m.node})
		}
	}
	need.Pending = podsOf(g.sorted(func(m *member) bool { return m.eligible() || m.state == Planned && m.free() }))
	return need
}

// letGoOfPlans gives back what plans gave to a group, for one that begins afresh.
func (s *Gangs) letGoOfPlans(grp *group) {
	for _, g := range grp.gangs {
		if g.goesAlone() {
			continue
		}
		for _, m := range g.members {
			if m.state == Planned {
				s.unplan(m)
			}
		}
	}
}
