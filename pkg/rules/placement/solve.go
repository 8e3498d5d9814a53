package placement

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
)

// The effort of a search if the problem sets none, in Takes of the world: what it does beyond its first pass must stay
// in proportion to the members.
const (
	leastEffort     = 20000
	effortPerMember = 50
	// slotsPerTake is how many calls of Slots cost as much as one Take.
	slotsPerTake = 50
)

// Solve places the gangs of a problem. Gangs that require a topology go first, one after the other, each trying its
// domains from the tightest; if a later one finds no place, an earlier one moves on to its next domain. The others are
// placed jointly. The search is exhaustive while members are alike and topologies nested, and greedy if shapes compete.
// An error is the world's, and leaves nothing placed.
func Solve(ctx context.Context, w World, p Problem) (Result, error) {
	return newSolver(w, p).run(ctx)
}

func newSolver(w World, p Problem) *solver {
	return &solver{
		world: w, Problem: p, effort: cmp.Or(p.Effort, max(leastEffort, effortPerMember*len(p.Members))),
		best: make([]Outcome, len(p.Gangs)), fits: make([]map[string]int, len(p.Gangs)),
		takers: map[int]map[string]bool{}, domains: map[string][]topology.Domain{}, extraMet: map[int]bool{},
		grownTrees: map[grown]*branch{},
	}
}

// run solves the problem.
func (s *solver) run(ctx context.Context) (Result, error) {
	start := s.world.Mark()
	result, err := s.solve(ctx)
	if err != nil {
		return Result{}, errors.Join(err, s.world.Undo(ctx, start))
	}
	if !result.Complete && !s.KeepPartial {
		result.Node = nil
		return result, s.world.Undo(ctx, start)
	}
	result.Node, result.As = s.inOrder(result.Node)
	return result, nil
}

type solver struct {
	world World
	Problem
	effort int
	// pass is the first tactic of every part.
	pass tactic
	// partial: what fits is wanted even if the whole does not.
	partial bool

	// best is how far each gang came, over all tries, and fits how far in each scope; nil before the first try.
	best []Outcome
	fits []map[string]int
	// stuck is the part that found no place after other parts, until it is known whether it would find one alone.
	stuck part
	// takers are the domains in which such a part finds a place alone, by its first gang, once known.
	takers map[int]map[string]bool
	// domains of the nodes, by label key.
	domains map[string][]topology.Domain
	// grownTrees are the domain trees of gangs with a layout.
	grownTrees map[grown]*branch
	// extras are those of the gangs placed so far.
	extras []Extra
	// extraMet are the gangs whose extra was met somewhere.
	extraMet map[int]bool
	// extraDomains are the nodes that count for extras, by label key and value.
	extraDomains map[string]map[string][]int
}

// part is a set of gangs that are placed together: one that requires a topology, or all that require none.
type part []int

func (s *solver) solve(ctx context.Context) (Result, error) {
	s.orderLevels()
	for i, g := range s.Gangs {
		s.best[i].Unplaced = s.chooseMinimum(g, false)
	}
	parts := s.parts()
	node := map[int]int{}
	complete, err := s.search(ctx, parts, node)
	if err != nil {
		return Result{}, err
	}
	if !complete {
		if err := s.tryRest(ctx, parts); err != nil {
			return Result{}, err
		}
		if s.KeepPartial {
			if err := s.fillPartially(ctx, node); err != nil {
				return Result{}, err
			}
			complete = s.allPlaced(node)
		}
	}
	return Result{Node: node, Complete: complete, Gangs: s.outcomes()}, nil
}

// passes are the first tactics: as the world scores; then so that a part leaves as much room for the others as it can.
var passes = []tactic{{}, {tight: true}, {tight: true, small: true}}

// search looks for a place for all parts. When a part finds none after others for the first time, it is tried alone
// before more effort goes into moving the others.
func (s *solver) search(ctx context.Context, parts []part, node map[int]int) (bool, error) {
	for _, s.pass = range passes {
		for {
			s.stuck = nil
			complete, err := s.descend(ctx, parts, node)
			if complete || err != nil || s.spent() {
				return complete, err
			}
			if s.stuck == nil {
				break // all ways were tried
			}
			if s.stuck[0] == parts[0][0] {
				return false, nil // no other part was in its way
			}
			if alone, err := s.placeableAlone(ctx, s.stuck); err != nil || !alone {
				return false, err
			}
		}
		if len(parts) == 1 {
			break // a single part is packed as tightly as possible already
		}
	}
	return false, nil
}

// descend tries the scopes of the first part, and continues with the rest.
func (s *solver) descend(ctx context.Context, parts []part, node map[int]int) (bool, error) {
	if len(parts) == 0 {
		return true, nil
	}
	p, fitted := parts[0], false
	for _, scope := range s.scopes(p) {
		if s.spent() {
			return false, nil
		}
		if s.maySkip(p, scope) {
			continue
		}
		mark, extras := s.world.Mark(), len(s.extras)
		placed, ok, err := s.inScope(ctx, p, scope)
		if err != nil {
			return false, err
		}
		if ok {
			fitted = true
			s.extras = append(s.extras, s.extrasOf(p, scope.Value, placed)...)
			ok, err = s.descend(ctx, parts[1:], node)
			s.extras = s.extras[:extras]
			if err != nil {
				return false, err
			}
			if ok {
				maps.Copy(node, placed)
				return true, nil
			}
		}
		if err := s.world.Undo(ctx, mark); err != nil {
			return false, err
		}
		if s.stuck != nil {
			return false, nil
		}
	}
	if !fitted && s.takers[p[0]] == nil && !s.Attracted {
		s.stuck = p
	}
	return false, nil
}

// placeableAlone reports whether a part finds a place with no other part in its way, and records where.
func (s *solver) placeableAlone(ctx context.Context, p part) (bool, error) {
	takers := map[string]bool{}
	for _, scope := range s.scopes(p) {
		if s.maySkip(p, scope) {
			continue
		}
		mark := s.world.Mark()
		_, ok, err := s.inScope(ctx, p, scope)
		if err != nil {
			return false, err
		}
		if ok {
			takers[scope.Value] = true
		}
		if err := s.world.Undo(ctx, mark); err != nil {
			return false, err
		}
		if s.spent() {
			break
		}
	}
	s.takers[p[0]] = takers
	return len(takers) > 0, nil
}

// tryRest tries alone the parts that the search did not reach, so that they can be reported.
func (s *solver) tryRest(ctx context.Context, parts []part) error {
	for _, p := range parts {
		if s.fits[p[0]] == nil {
			s.effort = max(s.effort, len(s.Members))
			if _, err := s.placeableAlone(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *solver) spent() bool { return s.effort <= 0 }

// inScope places a part inside a scope. If ok is false, the caller must undo what was placed.
func (s *solver) inScope(ctx context.Context, p part, scope topology.Ranked) (placed map[int]int, ok bool, err error) {
	placed, err = s.fill(ctx, p, scope.Nodes, s.mayTake(p, scope))
	if err != nil {
		return nil, false, err
	}
	for _, gang := range p {
		s.record(gang, scope.Value, membersOf(s.Gangs[gang], placed))
	}
	if !s.enough(p, placed) {
		return placed, false, nil
	}
	ok, err = s.extrasFit(ctx, append(slices.Clip(s.extras), s.extrasOf(p, scope.Value, placed)...))
	return placed, ok, err
}

// fillPartially places, gang by gang, as many members as the best scope takes. Gangs that
// share a domain are placed together.
func (s *solver) fillPartially(ctx context.Context, node map[int]int) error {
	s.partial, s.pass = true, passes[0]
	clear(s.takers)
	var shared part
	for gang, g := range s.Gangs {
		if g.Min == 0 {
			continue
		}
		if g.Shared {
			shared = append(shared, gang)
			continue
		}
		if err := s.fillPart(ctx, part{gang}, node); err != nil {
			return err
		}
	}
	if len(shared) > 0 {
		return s.fillPart(ctx, shared, node)
	}
	return nil
}

func (s *solver) fillPart(ctx context.Context, p part, node map[int]int) error {
	var scope topology.Ranked
	most := -1
	for _, candidate := range s.scopes(p) {
		if fit := s.fitOf(p, candidate); fit > most {
			scope, most = candidate, fit
		}
	}
	if most <= 0 {
		return nil
	}
	mark := s.world.Mark()
	placed, ok, err := s.inScope(ctx, p, scope)
	if err != nil {
		return err
	}
	if !ok && s.enough(p, placed) {
		// With its whole minimum it would start, but it lacks its extra.
		return s.world.Undo(ctx, mark)
	}
	if ok {
		s.extras = append(s.extras, s.extrasOf(p, scope.Value, placed)...)
	}
	maps.Copy(node, placed)
	return nil
}

// allPlaced reports whether every gang has its minimum.
func (s *solver) allPlaced(node map[int]int) bool {
	for gang := range s.Gangs {
		if !s.enough(part{gang}, node) {
			return false
		}
	}
	return true
}

// fitOf returns how many members of a part a scope takes as far as known: by an earlier try, bounded by the current
// state.
func (s *solver) fitOf(p part, scope topology.Ranked) int {
	sum := 0
	for _, gang := range p {
		fit, ok := s.fits[gang][scope.Value]
		if !ok {
			return scope.Most
		}
		sum += fit
	}
	return min(sum, scope.Most)
}
