package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// sliced reports whether members must be together in slices.
func (g *Gang) sliced() bool { return slices.ContainsFunc(g.Levels, Level.sliced) }

// orderLevels sorts the levels of gangs with unknown order, unless that would change the order of the levels with
// slices.
func (s *solver) orderLevels() {
	s.Gangs = slices.Clone(s.Gangs)
	for i := range s.Gangs {
		g := &s.Gangs[i]
		if !g.Unordered {
			continue
		}
		levels := slices.Clone(g.Levels)
		slices.SortStableFunc(levels, func(a, b Level) int { return cmp.Compare(s.coarseness(b.Key), s.coarseness(a.Key)) })
		size := 0
		kept := !slices.ContainsFunc(levels, func(level Level) bool {
			if !level.sliced() {
				return false
			}
			finer := size == 0 || level.Slice <= size
			size = level.Slice
			return !finer
		})
		if kept {
			g.Levels = levels
		}
	}
}

// inOrder swaps the places of members that the world cannot tell apart, within the finest domain that they share, so
// that members of consecutive ranks are on one node. It returns where each goes, and in which member's place. If some
// members of a gang were placed before, the others stay where they are, beside their neighbours.
func (s *solver) inOrder(node map[int]int) (ordered, as map[int]int) {
	ordered, as = make(map[int]int, len(node)), make(map[int]int, len(node))
	for _, g := range s.Gangs {
		alike := map[string][]int{}
		for _, m := range g.Members {
			at, ok := node[m]
			switch {
			case !ok:
			case s.Members[m].Own || len(g.On) > 0:
				ordered[m], as[m] = at, m
			default:
				key := fmt.Sprintf("%d/%s/%s", s.Members[m].Class, s.Members[m].Role, s.address(g, at))
				alike[key] = append(alike[key], m)
			}
		}
		for _, members := range alike {
			slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(s.Members[a].Rank, s.Members[b].Rank) })
			places := slices.Clone(members)
			slices.SortStableFunc(places, func(a, b int) int { return cmp.Compare(node[a], node[b]) })
			for i, m := range members {
				ordered[m], as[m] = node[places[i]], places[i]
			}
		}
	}
	return ordered, as
}

// Number ranks placed members that carry no numbers: in their order, each takes the lowest free number with which every
// slice is in one domain.
func Number(on []PlacedMember, levels []Level, label func(node int, key string) (string, bool)) {
	levels = Sliced(levels)
	type slice struct{ level, number int }
	homes, next := map[slice]string{}, map[string]int{} // next is the lowest number that may be left, by domain
	for i := range on {
		domains, path := make([]string, len(levels)), ""
		for l, level := range levels {
			value, _ := label(on[i].Node, level.Key)
			path += value + "\x00"
			domains[l] = path
		}
		rank := next[path]
		for l := 0; l < len(levels); {
			number := rank / levels[l].Slice
			if home, begun := homes[slice{l, number}]; begun && home != domains[l] {
				rank, l = (number+1)*levels[l].Slice, 0
			} else {
				l++
			}
		}
		for l, level := range levels {
			homes[slice{l, rank / level.Slice}] = domains[l]
		}
		on[i].Rank, next[path] = rank, rank+1
	}
}

// Free returns the lowest n numbers that no placed member has.
func Free(on []PlacedMember, n int) []int {
	taken := make(map[int]bool, len(on))
	for _, placed := range on {
		taken[placed.Rank] = true
	}
	free := make([]int, 0, n)
	for rank := 0; len(free) < n; rank++ {
		if !taken[rank] {
			free = append(free, rank)
		}
	}
	return free
}

// Neighbours returns the members nearest to a rank on either side; a member of that very rank is on both.
func Neighbours(on []PlacedMember, rank int) []PlacedMember {
	var nearest []PlacedMember
	for _, side := range []int{-1, 1} {
		least, next := furthest, -1
		for i, standing := range on {
			if distance := (standing.Rank - rank) * side; distance >= 0 && distance < least {
				least, next = distance, i
			}
		}
		if next >= 0 {
			nearest = append(nearest, on[next])
		}
	}
	return nearest
}

// address identifies the domains of a gang's levels that a node is in.
func (s *solver) address(g Gang, node int) string {
	var b strings.Builder
	for _, level := range g.Levels {
		value, ok := s.world.Label(node, level.Key)
		fmt.Fprintf(&b, "%t %s/", ok, value)
	}
	return b.String()
}
