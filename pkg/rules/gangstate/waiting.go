package gangstate

import (
	"cmp"
	"slices"
)

// Waiting returns what would be tried of each group that has all its members and no place, in order of rank. Unlike an
// attempt of a cycle it changes nothing.
func (s *Gangs) Waiting() []*Attempt {
	var groups []*group
	for key, g := range s.gangs {
		if grp := g.group; grp.key() == key && (grp.phase == inTurn || grp.phase == awaiting) && grp.need() > 0 {
			groups = append(groups, grp)
		}
	}
	slices.SortFunc(groups, compareRank)
	var list []*Attempt
	for _, grp := range groups {
		a := &Attempt{Group: grp.key().String(), Leader: grp.leader, Strict: grp.strict()}
		for _, g := range grp.gangs {
			a.Gangs = append(a.Gangs, g.wants())
		}
		if leader := grp.pickLeader(); leader != nil {
			a.Leader = cmp.Or(a.Leader, leader.pod.UID)
		}
		list = append(list, a)
	}
	return list
}
