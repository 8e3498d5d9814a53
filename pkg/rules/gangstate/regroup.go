package gangstate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// updateNamedGangs updates the reverse index of groups, and regroups the gangs.
func (s *Gangs) updateNamedGangs(g *gang, before []gangspec.Key, now time.Time) {
	for _, key := range before {
		nested.Delete(s.naming, key, g.key)
	}
	for _, key := range g.spec.Groups {
		nested.Set(s.naming, key, g.key, true)
	}
	s.regroup(g, now)
}

// regroup puts g and the gangs that agree with it into one group: gangs that name each other. A gang also waits for a
// gang that does not name it back, but is not in its group. The plans of the old groups are void; what is held stays
// so, and counts in the new one. The caller settles g.
func (s *Gangs) regroup(g *gang, now time.Time) {
	together := s.agreeing(g)
	var old []*group
	for _, member := range together {
		if !slices.Contains(old, member.group) {
			old = append(old, member.group)
		}
	}
	if len(old) == 1 && len(g.group.gangs) == len(together) {
		s.noteApart(g)
		return
	}
	for _, former := range old {
		s.dissolve(former)
	}
	s.form(together)
	var left []*gang
	for _, former := range old {
		for _, member := range former.gangs {
			if member.group == former && s.gangs[member.key] == member {
				s.regroup(member, now) // fewer may agree, or there may be room for others by now
				left = append(left, member)
			}
		}
	}
	for _, member := range left {
		s.updatePhase(member, now)
	}
}

// dissolve ends a group. The capacity that its plan promised was held in its name.
func (s *Gangs) dissolve(former *group) {
	for _, g := range former.gangs {
		for _, m := range g.members {
			if m.state == Planned {
				s.unplan(m)
			}
		}
	}
	former.phase = gathering
	s.markChanged(former.gangs[0])
	delete(s.timed, former)
}

// form makes a group. It gathers until it is settled.
func (s *Gangs) form(gangs []*gang) {
	joint := &group{gangs: gangs}
	for _, member := range gangs {
		member.group = joint
	}
	for _, member := range gangs {
		s.noteApart(member)
	}
	s.mayFit(joint)
	s.admitGroup(joint)
}

// noteApart keeps the gangs that g names and is not grouped with.
func (s *Gangs) noteApart(g *gang) {
	g.apart = nil
	for _, key := range g.spec.Groups {
		if other := s.gangs[key]; other == nil || other.group != g.group {
			g.apart = append(g.apart, key)
		}
	}
}

// agreeing lists the gangs, g included, that the group of g would have by mutual naming. Other groups join whole, or
// not at all if the result would have more gangs than may start together: then those that name each other across groups
// wait.
func (s *Gangs) agreeing(g *gang) []*gang {
	found, known := []*gang{g}, map[*gang]bool{g: true}
	for i := 0; i < len(found); i++ {
		for _, other := range s.bothWays(found[i]) {
			if other.group == g.group && !known[other] {
				known[other] = true
				found = append(found, other)
			}
		}
	}
	for _, own := range slices.Clone(found) {
		for _, other := range s.bothWays(own) {
			if joining := other.group.gangs; !known[other] && other.group != g.group &&
				len(found)+len(joining) <= keys.MaxGroups {
				for _, one := range joining {
					known[one] = true
				}
				found = append(found, joining...)
			}
		}
	}
	slices.SortFunc(found, func(a, b *gang) int { return gangspec.CompareKeys(a.key, b.key) })
	return found
}

// bothWays lists the gangs that a gang names and that name it.
func (s *Gangs) bothWays(g *gang) (list []*gang) {
	for _, key := range g.spec.Groups {
		if other := s.gangs[key]; other != nil && other.names(g.key) {
			list = append(list, other)
		}
	}
	return list
}

// names reports whether the gang names another one in its groups.
func (g *gang) names(key gangspec.Key) bool {
	_, ok := slices.BinarySearchFunc(g.spec.Groups, key, gangspec.CompareKeys)
	return ok
}

// reportOneSided reports g, and the gangs that name it, where they name gangs that do not name them back: only they
// wait.
func (s *Gangs) reportOneSided(g *gang) {
	s.reportNotNamedBack(g)
	for _, key := range slices.SortedFunc(maps.Keys(s.naming[g.key]), gangspec.CompareKeys) {
		s.reportNotNamedBack(s.gangs[key])
	}
}

// reportNotNamedBack reports that g names gangs that do not name it back. A gang without members, or without a minimum,
// may still come to do so.
func (s *Gangs) reportNotNamedBack(g *gang) {
	if g == nil {
		return
	}
	var silent []string
	for _, key := range g.apart {
		named := s.gangs[key]
		if named != nil && len(named.members) > 0 && named.spec.Min > 0 && !named.names(g.key) {
			silent = append(silent, key.String())
		}
	}
	if len(silent) == 0 {
		return
	}
	names := strings.Join(silent, ", ")
	s.reportDescription(g, gangspec.KeyProblem{
		Key: v1alpha1.GroupsAnnotation, Value: names, Want: fmt.Sprintf("a gang that names %s back", g.key),
		Used: fmt.Sprintf("it one way: %s does not wait for %s; write the group on all its gangs", names, g.key),
	})
}

// awaited returns the first gang that g names, that does not name it back (or does not exist), and that does not run
// yet. A gang of which members run that count waits for none: those with which it was to start were there when it
// began. One of which members ran to success, or run and do not count, waits for no gang without members: that has come
// to its end.
func (s *Gangs) awaited(g *gang) (gangspec.Key, bool) {
	if g.hasStarted() || g.spec.Policy.CountsRunning() && g.running() > 0 {
		return gangspec.Key{}, false
	}
	for _, key := range g.apart {
		other := s.gangs[key]
		ended := (other == nil || len(other.members) == 0) && g.runningOrSucceeded().N > 0
		if !ended && (other == nil || !other.hasStarted()) {
			return key, true
		}
	}
	return gangspec.Key{}, false
}
