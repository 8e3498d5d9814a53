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

// Number ranks placed members that carry no numbers, so that members in one domain of a level with slices fill its
// slices one after the other.
func Number(on []PlacedMember, levels []Level, label func(node int, key string) (string, bool)) {
	levels = Sliced(levels)
	values := func(standing PlacedMember) []string {
		list := make([]string, len(levels))
		for i, level := range levels {
			list[i], _ = label(standing.Node, level.Key)
		}
		return list
	}
	slices.SortStableFunc(on, func(a, b PlacedMember) int { return slices.Compare(values(a), values(b)) })
	next := 0
	for i := range on {
		if i > 0 {
			before, now := values(on[i-1]), values(on[i])
			for l, level := range levels {
				if before[l] != now[l] {
					next = (next + level.Slice - 1) / level.Slice * level.Slice
					break
				}
			}
		}
		on[i].Rank = next
		next++
	}
}

// Gaps returns free numbers for a newcomer: in each incomplete slice, the finest slices first, and of these the
// fullest. In a slice with inner slices it begins one of these. If no slice is incomplete, it returns the first free
// number. The placed members have their numbers from Number.
func Gaps(on []PlacedMember, levels []Level) (ranks []int) {
	gaps, _ := gapsOf(on, levels)
	for _, g := range gaps {
		ranks = append(ranks, g.units[0][0])
	}
	if len(ranks) == 0 {
		return []int{Free(on, 0)}
	}
	return ranks
}

// Numbers returns numbers for newcomers beside placed members: those of the best gaps, see Gaps, and then the first
// free ones.
func Numbers(on []PlacedMember, levels []Level, newcomers int) (numbers []int) {
	gaps, known := gapsOf(on, levels)
	for _, g := range gaps {
		for _, unit := range g.units {
			numbers = append(numbers, unit...)
		}
	}
	for rank := 0; len(numbers) < newcomers; rank++ {
		if !known[rank] {
			numbers = append(numbers, rank)
		}
	}
	return numbers[:newcomers]
}

// Free returns the first number, from one on, that no placed member has from Number.
func Free(on []PlacedMember, from int) int {
	i, _ := slices.BinarySearchFunc(on, from, func(placed PlacedMember, rank int) int { return cmp.Compare(placed.Rank, rank) })
	for ; i < len(on) && on[i].Rank == from; i++ {
		from++
	}
	return from
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
