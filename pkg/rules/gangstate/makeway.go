package gangstate

import "slices"

// PartialHolders lists the groups of less than a priority that hold capacity without being
// complete.
func (s *Gangs) PartialHolders(below int32) []string {
	return s.partialHolders(func(grp *group) bool { return grp.priority() < below })
}

// partialHolders lists the groups that hold capacity without being complete and that pass the test, the last in rank
// first.
func (s *Gangs) partialHolders(test func(*group) bool) (names []string) {
	var found []*group
	for grp := range s.timed {
		if grp.holdsPart() && test(grp) {
			found = append(found, grp)
		}
	}
	slices.SortFunc(found, func(a, b *group) int { return compareRank(b, a) })
	for _, grp := range found {
		names = append(names, grp.key().String())
	}
	return names
}

// Yield makes groups that hold capacity without being complete give it back: others need it.
func (s *Gangs) Yield(names []string) Effects {
	for grp := range s.timed {
		if grp.holdsPart() && slices.Contains(names, grp.key().String()) {
			s.unreserve(grp)
			grp.clocks = clocks{}
		}
	}
	return s.take()
}

// LowerRankedHolders lists the groups that hold capacity without being complete and that
// rank below the group of an attempt, the last in rank first: NonStrict groups
// may starve each other.
func (s *Gangs) LowerRankedHolders(a *Attempt) []string {
	leader := s.members[a.Leader]
	if leader == nil {
		return nil
	}
	grp := leader.gang.group
	return s.partialHolders(func(other *group) bool { return other != grp && compareRank(grp, other) < 0 })
}
