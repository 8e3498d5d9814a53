package placement

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
)

// The effort that a search may take if the problem sets none, in Takes of the world: what it does
// beyond its first way through has to stay in proportion to the members.
const (
	leastEffort     = 20000
	effortPerMember = 50
	// slotsPerTake is how many calls of Slots cost as much as one Take.
	slotsPerTake = 50
)

// Solve places the gangs of a problem. Gangs that are bound to a topology go first, one after the
// other, each trying its domains from the tightest; if a later one finds no place, an earlier one
// moves on to its next domain. Gangs that are bound to none are placed jointly. The search is
// exhaustive while members are alike and topologies nested, and greedy if shapes compete. An error
// is the world's, and leaves nothing placed.
func Solve(ctx context.Context, w World, p Problem) (Result, error) {
	return newSolver(w, p).run(ctx)
}

func newSolver(w World, p Problem) *solver {
	return &solver{
		world: w, Problem: p, effort: cmp.Or(p.Effort, max(leastEffort, effortPerMember*len(p.Members))),
		best: make([]Outcome, len(p.Gangs)), fits: make([]map[string]int, len(p.Gangs)),
		takers: map[int]map[string]bool{}, domains: map[string][]topology.Domain{}, floorMet: map[int]bool{},
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
	// pass is how every part begins.
	pass tactic
	// partial: what fits is wanted even if the whole does not.
	partial bool

	// best is how far each gang came, over all tries, and fits how far in each scope; nil if there
	// was no try.
	best []Outcome
	fits []map[string]int
	// stuck is the part that found no place after other parts, while it is not known yet whether it
	// would find one alone.
	stuck part
	// takers are the domains in which such a part would find one, by its first gang, once that is
	// known.
	takers map[int]map[string]bool
	// domains of the nodes, by label key.
	domains map[string][]topology.Domain
	// grownTrees are the domains of gangs that are laid out.
	grownTrees map[grown]*branch
	// floors are the floors of the gangs that have been placed so far.
	floors []Floor
	// floorMet are the gangs whose floor was met somewhere.
	floorMet map[int]bool
	// floorDomains are the nodes that count for floors, by label key and value.
	floorDomains map[string]map[string][]int
}

// part is gangs that are placed together: one that is bound to a topology, or all
// that are not.
type part []int

func (s *solver) solve(ctx context.Context) (Result, error) {
	s.orderLevels()
	for i, g := range s.Gangs {
		s.best[i].Unplaced = s.choose(g, false)
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
			complete = s.all(node)
		}
	}
	return Result{Node: node, Complete: complete, Gangs: s.outcomes()}, nil
}

// passes are the ways to begin: as the world scores; then so that a part leaves as much room for
// the others as it can.
var passes = []tactic{{}, {tight: true}, {tight: true, small: true}}

// search looks for a place for all parts. When a part finds none after others for the first time,
// it is tried alone before more effort goes into moving the others about.
func (s *solver) search(ctx context.Context, parts []part, node map[int]int) (bool, error) {
	for _, s.pass = range passes {
		for {
			s.stuck = nil
			complete, err := s.descend(ctx, parts, node)
			if complete || err != nil || s.spent() {
				return complete, err
			}
			if s.stuck == nil {
				break // every way was tried
			}
			if s.stuck[0] == parts[0][0] {
				return false, nil // no other part was in its way
			}
			if alone, err := s.alone(ctx, s.stuck); err != nil || !alone {
				return false, err
			}
		}
		if len(parts) == 1 {
			break // a single part is packed as tightly as it can be already
		}
	}
	return false, nil
}

// descend tries the scopes of the first part, and goes on into the rest.
func (s *solver) descend(ctx context.Context, parts []part, node map[int]int) (bool, error) {
	if len(parts) == 0 {
		return true, nil
	}
	p, fitted := parts[0], false
	for _, scope := range s.scopes(p) {
		if s.spent() {
			return false, nil
		}
		if s.idle(p, scope) {
			continue
		}
		mark, floors := s.world.Mark(), len(s.floors)
		placed, ok, err := s.inScope(ctx, p, scope)
		if err != nil {
			return false, err
		}
		if ok {
			fitted = true
			s.floors = append(s.floors, s.floorsOf(p, scope.Value, placed)...)
			ok, err = s.descend(ctx, parts[1:], node)
			s.floors = s.floors[:floors]
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
	if !fitted && s.takers[p[0]] == nil {
		s.stuck = p
	}
	return false, nil
}

// alone reports whether a part finds a place with no other part in its way, and notes where.
func (s *solver) alone(ctx context.Context, p part) (bool, error) {
	takers := map[string]bool{}
	for _, scope := range s.scopes(p) {
		if s.idle(p, scope) {
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

// tryRest tries alone the parts that the search did not come to, so that there is something to
// report about them.
func (s *solver) tryRest(ctx context.Context, parts []part) error {
	for _, p := range parts {
		if s.fits[p[0]] == nil {
			s.effort = max(s.effort, len(s.Members))
			if _, err := s.alone(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *solver) spent() bool { return s.effort <= 0 }

// inScope places a part inside a scope. If ok is false, the caller has to undo what was placed.
func (s *solver) inScope(ctx context.Context, p part, scope topology.Ranked) (placed map[int]int, ok bool, err error) {
	placed, err = s.fill(ctx, p, scope.Nodes, s.mayTake(p, scope))
	if err != nil {
		return nil, false, err
	}
	for _, gang := range p {
		s.record(gang, scope.Value, of(s.Gangs[gang], placed))
	}
	if !s.enough(p, placed) {
		return placed, false, nil
	}
	ok, err = s.spare(ctx, append(slices.Clip(s.floors), s.floorsOf(p, scope.Value, placed)...))
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
		// With its whole minimum it would start, but it lacks its floor.
		return s.world.Undo(ctx, mark)
	}
	if ok {
		s.floors = append(s.floors, s.floorsOf(p, scope.Value, placed)...)
	}
	maps.Copy(node, placed)
	return nil
}

// all reports whether every gang has its minimum.
func (s *solver) all(node map[int]int) bool {
	for gang := range s.Gangs {
		if !s.enough(part{gang}, node) {
			return false
		}
	}
	return true
}

// fitOf returns how many members of a part a scope takes as far as is known: what it took when it
// was tried, and what arithmetic says of it now.
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
