package gangstate

import (
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// PartialHolders returns the ranks of the groups that hold capacity without being complete, in no order: NonStrict
// groups may starve each other. The name of a rank is that of the group.
func (s *Gangs) PartialHolders() (ranks []turns.Rank) {
	for grp := range s.timed {
		if grp.holdsPart() {
			ranks = append(ranks, grp.rankOf())
		}
	}
	return ranks
}

// Yield makes groups that hold capacity without being complete give it back: others need it.
func (s *Gangs) Yield(names []string) Effects {
	for grp := range s.timed {
		if grp.holdsPart() && slices.Contains(names, grp.key().String()) {
			s.unreserve(grp)
			grp.clocks = clocks{}
		}
	}
	return s.takeEffects()
}
