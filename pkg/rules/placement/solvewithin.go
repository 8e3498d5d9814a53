package placement

import (
	"context"
	"fmt"

	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
)

// SolveWithin places the gangs of a problem inside one of several sets of nodes: among sets that take the whole problem
// in the tightest, the first of equals; if none does, in the one that takes most members of the minimums. It tries the
// sets from the tightest that should suffice. It tries a set that bounds rule out only if it may take more members than
// those before, and spends no more effort on all sets than on one problem without sets; it tries at least one. Without
// sets it is Solve.
func SolveWithin(ctx context.Context, w World, p Problem, sets [][]int) (Result, error) {
	if len(sets) == 0 {
		return Solve(ctx, w, p)
	}
	s := newSolver(w, p)
	need := 0
	for _, g := range p.Gangs {
		need += g.Min
	}
	var best Result
	var bestSet []int
	most := -1
	for _, set := range s.rankSets(sets, need) {
		if most >= 0 && (s.spent() || set.Most < need && min(set.Most, need) <= most) {
			continue
		}
		inside := p
		inside.Nodes, inside.Effort, inside.KeepPartial = set.Nodes, max(s.effort, 1), true
		start := w.Mark()
		one := newSolver(w, inside)
		result, err := one.run(ctx)
		if err != nil || result.Complete {
			return result, err
		}
		s.effort = one.effort
		if err := w.Undo(ctx, start); err != nil {
			return Result{}, err
		}
		if len(result.Node) > most {
			best, bestSet, most = result, set.Nodes, len(result.Node)
		}
	}
	if !p.KeepPartial {
		best.Node = nil
		return best, nil
	}
	p.Nodes = bestSet
	return Solve(ctx, w, p)
}

// rankSets orders sets of nodes like domains of a topology for one gang. Among equals the first comes first.
func (s *solver) rankSets(sets [][]int, need int) []topology.Ranked {
	all := make(part, len(s.Gangs))
	for i := range all {
		all[i] = i
	}
	mix := s.mixOf(all)
	ranked := make([]topology.Ranked, len(sets))
	for i, nodes := range sets {
		ranked[i] = s.rankDomain(topology.Domain{Value: fmt.Sprintf("%08d", i), Nodes: nodes}, need, mix)
	}
	topology.TightestFirst(ranked, need)
	return ranked
}
