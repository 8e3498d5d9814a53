package defrag

import (
	"cmp"
	"math/bits"
	"slices"
)

// arrive is reached when all pods that had to leave have a place: that is a plan, if its moves have
// an order.
func (s *search) arrive(allowance int) {
	moves := make([]Move, 0, len(s.out))
	for _, pod := range s.out {
		moves = append(moves, Move{Pod: pod, To: s.to[pod]})
	}
	s.steps += len(moves)
	order, ok, gaveUp := s.sequenced(s.places, moves)
	s.cut = s.cut || gaveUp
	if !ok {
		s.unblock(allowance)
		return
	}
	plan := &Plan{Moves: s.trimmed(order), Domain: slices.Clone(s.domain), Places: s.sortedPlaces()}
	plan.Cost = s.Problem.cost(plan.Moves)
	if s.best == nil || cmp.Or(plan.Cost.Compare(s.best.Cost), cmp.Compare(len(plan.Moves), len(s.best.Moves))) < 0 {
		s.best = plan
	}
}

// unblock takes one more pod off a node that others are to come to, so that they find an order:
// pods that wait for each other can move once there is room.
func (s *search) unblock(allowance int) {
	if s.extras >= s.deepest {
		s.cut = true
		return
	}
	type way struct {
		pod  int
		cost Cost
	}
	var ways []way
	seen := map[int]bool{}
	for _, pod := range s.out {
		node := s.to[pod]
		if seen[node] {
			continue
		}
		seen[node] = true
		last := nowhere
		for _, other := range s.on[node] {
			if s.to[other] != stays || last != nowhere && s.alike(last, other) {
				continue
			}
			last = other
			if cost, ok := s.price([]int{other}); ok {
				ways = append(ways, way{other, cost})
			}
		}
	}
	s.steps += len(ways)
	slices.SortFunc(ways, func(a, b way) int { return cmp.Or(a.cost.Compare(b.cost), cmp.Compare(a.pod, b.pod)) })
	s.extras++
	for i, w := range ways {
		if bits.Len(uint(i)) > allowance {
			s.cut = true
			break
		}
		if s.push(w.pod) {
			s.depth[w.pod] = 1
			s.descend(allowance - bits.Len(uint(i)))
			s.pull()
		}
	}
	s.extras--
}

// trimmed leaves out the moves that the rest does without, even if that takes another order.
func (s *search) trimmed(moves []Move) []Move {
	for again := true; again; {
		again = false
		for i := 0; i < len(moves); {
			rest := slices.Delete(slices.Clone(moves), i, i+1)
			order, ok := s.stands(rest)
			if !ok {
				i++
				continue
			}
			moves, again = order, true
		}
	}
	return moves
}

// stands reports whether moves are a plan, and returns their order.
func (s *search) stands(moves []Move) ([]Move, bool) {
	if !s.membersFit(s.places, moves) {
		return nil, false
	}
	order, ok, _ := s.sequenced(s.places, moves)
	return order, ok
}

// membersFit reports whether there is room for what the members ask for after moves.
func (p *Problem) membersFit(places [][][]int, moves []Move) bool {
	free := map[int][]int64{}
	p.eachMember(places, func(node int, request []int64) {
		if free[node] == nil {
			free[node] = slices.Clone(p.Nodes[node].Free)
		}
		take(free[node], request)
	})
	for _, m := range moves {
		if at := free[m.To]; at != nil {
			take(at, p.Pods[m.Pod].Request)
		}
		if at := free[p.Pods[m.Pod].Node]; at != nil {
			give(at, p.Pods[m.Pod].Request)
		}
	}
	fit := true
	p.eachMember(places, func(node int, request []int64) {
		for c, amount := range request {
			fit = fit && (amount == 0 || free[node][c] >= 0)
		}
	})
	return fit
}

// sortedPlaces returns a copy of the members' places.
func (s *search) sortedPlaces() [][][]int {
	places := make([][][]int, len(s.places))
	for i, classes := range s.places {
		places[i] = make([][]int, len(classes))
		for j, nodes := range classes {
			places[i][j] = slices.Sorted(slices.Values(nodes))
		}
	}
	return places
}

// finished returns the best plan, with its moves linked.
func (s *search) finished() Plan {
	plan := *s.best
	plan.Moves = s.linked(plan.Places, plan.Moves)
	return plan
}
