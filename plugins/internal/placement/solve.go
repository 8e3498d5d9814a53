package placement

import (
	"cmp"
	"errors"
	"slices"

	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
)

// maxTries bounds the domains that are tried for a whole problem, so that gangs
// of one group which each need a domain cannot multiply.
const maxTries = 2000

// Solve places the gangs of a problem. Gangs that need a domain go first, one
// after the other, each trying its domains from the tightest; where a later one
// fails, an earlier one moves on to its next domain. The rest is placed jointly.
// An error is the world's, and leaves nothing placed.
func Solve(w World, p Problem) (Result, error) {
	s := &solver{world: w, Problem: p, tries: maxTries}
	start := w.Mark()
	result, err := s.solve()
	if err != nil {
		return Result{}, errors.Join(err, w.Undo(start))
	}
	if !result.Complete && !p.KeepPartial {
		result.Node = nil
		return result, w.Undo(start)
	}
	return result, nil
}

type solver struct {
	world World
	Problem
	tries int
	// best is how far each gang came, over all tries.
	best []Outcome
}

func (s *solver) solve() (Result, error) {
	s.best = make([]Outcome, len(s.Gangs))
	for i, g := range s.Gangs {
		s.best[i].Unplaced = s.choose(g)
	}
	var bound, free []int
	for i, g := range s.Gangs {
		if g.Required != "" || g.Preferred != "" {
			bound = append(bound, i)
		} else {
			free = append(free, i)
		}
	}
	node := map[int]int{}
	complete, err := s.boundThenFree(bound, free, node)
	if err != nil {
		return Result{}, err
	}
	if !complete && s.KeepPartial {
		clear(node)
		if err := s.partial(node); err != nil {
			return Result{}, err
		}
	}
	return Result{Node: node, Complete: complete, Gangs: s.best}, nil
}

// boundThenFree is the search: the first bound gang tries its scopes, and
// recurses into the rest.
func (s *solver) boundThenFree(bound, free []int, node map[int]int) (bool, error) {
	if len(bound) == 0 {
		return s.jointly(free, node)
	}
	g := bound[0]
	for _, scope := range s.scopes(g) {
		if s.tries--; s.tries < 0 {
			return false, nil
		}
		mark := s.world.Mark()
		placed, ok, err := s.inScope(g, scope)
		if err != nil {
			return false, err
		}
		if ok {
			if ok, err = s.boundThenFree(bound[1:], free, node); err != nil {
				return false, err
			}
			if ok {
				merge(node, placed)
				return true, nil
			}
		}
		if err := s.world.Undo(mark); err != nil {
			return false, err
		}
	}
	return false, nil
}

func merge(into, from map[int]int) {
	for member, node := range from {
		into[member] = node
	}
}

// scopes lists the domains of a gang's required topology, in the order to try
// them; one scope, all nodes, where it requires none.
func (s *solver) scopes(gang int) []topology.Domain {
	g := s.Gangs[gang]
	if g.Required == "" {
		return []topology.Domain{{Nodes: s.Nodes}}
	}
	domains := topology.Domains(s.Nodes, func(node int) (string, bool) { return s.world.Label(node, g.Required) })
	if value, pinned := s.valueOn(g, g.Required); pinned {
		domains = slices.DeleteFunc(domains, func(d topology.Domain) bool { return d.Value != value })
	}
	ranked := s.rank(g, domains)
	topology.TightestFirst(ranked, g.Min)
	return plain(ranked)
}

// valueOn is the domain in which members of the gang are already. A required
// topology that was violated from outside pins to the first of them.
func (s *solver) valueOn(g Gang, key string) (string, bool) {
	for _, node := range g.On {
		if value, ok := s.world.Label(node, key); ok {
			return value, true
		}
	}
	return "", false
}

func (s *solver) rank(g Gang, domains []topology.Domain) []topology.Ranked {
	classes := s.classes(g)
	ranked := make([]topology.Ranked, len(domains))
	for i, d := range domains {
		ranked[i] = topology.Ranked{Domain: d, Slots: s.slots(classes, d.Nodes)}
	}
	return ranked
}

func plain(ranked []topology.Ranked) []topology.Domain {
	domains := make([]topology.Domain, len(ranked))
	for i, d := range ranked {
		domains[i] = d.Domain
	}
	return domains
}

func (s *solver) classes(g Gang) []int {
	var classes []int
	for _, m := range g.Members {
		classes = append(classes, s.Members[m].Class)
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

// slots bounds how many members a scope takes: what it takes of the class that
// it takes most of.
func (s *solver) slots(classes, nodes []int) int {
	most := 0
	for _, class := range classes {
		sum := 0
		for _, node := range nodes {
			sum += s.world.Slots(class, node)
		}
		most = max(most, sum)
	}
	return most
}

// inScope places one gang inside one scope, by its preference if it has one.
func (s *solver) inScope(gang int, scope topology.Domain) (map[int]int, bool, error) {
	g := s.Gangs[gang]
	var placed map[int]int
	var err error
	if g.Preferred == "" {
		placed, err = s.fill([]int{gang}, [][]int{scope.Nodes})
	} else {
		placed, err = s.prefer(gang, scope)
	}
	if err != nil {
		return nil, false, err
	}
	s.record(gang, scope, placed)
	return placed, len(placed) >= g.Min && s.rolesMet(g, placed), nil
}

// prefer tries the domains of the preferred topology one by one, and where none
// takes the gang whole, goes through them from the roomiest, so that it spreads
// over few.
func (s *solver) prefer(gang int, scope topology.Domain) (map[int]int, error) {
	g := s.Gangs[gang]
	domains := s.rank(g, topology.Domains(scope.Nodes, func(node int) (string, bool) { return s.world.Label(node, g.Preferred) }))
	topology.TightestFirst(domains, g.Min)
	lead, led := s.valueOn(g, g.Preferred)
	if led {
		slices.SortStableFunc(domains, func(a, b topology.Ranked) int { return cmp.Compare(btoi(a.Value != lead), btoi(b.Value != lead)) })
	}
	for _, d := range domains {
		if d.Slots < g.Min {
			continue
		}
		if s.tries--; s.tries < 0 {
			break
		}
		mark := s.world.Mark()
		placed, err := s.fill([]int{gang}, [][]int{d.Nodes})
		if err != nil {
			return nil, err
		}
		if len(placed) >= g.Min && s.rolesMet(g, placed) {
			return placed, nil
		}
		if err := s.world.Undo(mark); err != nil {
			return nil, err
		}
	}
	topology.RoomiestFirst(domains)
	if led {
		slices.SortStableFunc(domains, func(a, b topology.Ranked) int { return cmp.Compare(btoi(a.Value != lead), btoi(b.Value != lead)) })
	}
	steps := make([][]int, 0, len(domains)+1)
	for _, d := range domains {
		steps = append(steps, d.Nodes)
	}
	return s.fill([]int{gang}, append(steps, s.outside(scope.Nodes, g.Preferred)))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// outside lists the nodes that are in no domain.
func (s *solver) outside(nodes []int, key string) []int {
	return slices.DeleteFunc(slices.Clone(nodes), func(node int) bool {
		_, ok := s.world.Label(node, key)
		return ok
	})
}

// jointly places gangs that are bound to no domain, all nodes being their scope.
func (s *solver) jointly(gangs []int, node map[int]int) (bool, error) {
	if len(gangs) == 0 {
		return true, nil
	}
	mark := s.world.Mark()
	placed, err := s.fill(gangs, [][]int{s.Nodes})
	if err != nil {
		return false, err
	}
	all := true
	for _, gang := range gangs {
		mine := of(s.Gangs[gang], placed)
		s.record(gang, topology.Domain{}, mine)
		all = all && len(mine) >= s.Gangs[gang].Min && s.rolesMet(s.Gangs[gang], mine)
	}
	if !all {
		return false, s.world.Undo(mark)
	}
	merge(node, placed)
	return true, nil
}

// partial places, gang by gang, as many members as the best scope takes.
func (s *solver) partial(node map[int]int) error {
	for gang, g := range s.Gangs {
		scope := topology.Domain{Nodes: s.Nodes}
		if scopes := s.scopes(gang); g.Required != "" {
			if len(scopes) == 0 {
				continue
			}
			scope = scopes[0]
			if fits := s.best[gang].Domains; len(fits) > 0 {
				if i := slices.IndexFunc(scopes, func(d topology.Domain) bool { return d.Value == fits[0].Value }); i >= 0 {
					scope = scopes[i]
				}
			}
		}
		placed, _, err := s.inScope(gang, scope)
		if err != nil {
			return err
		}
		merge(node, placed)
	}
	return nil
}

// of selects what belongs to a gang.
func of(g Gang, placed map[int]int) map[int]int {
	mine := map[int]int{}
	for _, m := range g.Members {
		if node, ok := placed[m]; ok {
			mine[m] = node
		}
	}
	return mine
}

// record keeps how far a gang came.
func (s *solver) record(gang int, scope topology.Domain, placed map[int]int) {
	g, best := s.Gangs[gang], &s.best[gang]
	if g.Required != "" {
		i := slices.IndexFunc(best.Domains, func(d DomainFit) bool { return d.Value == scope.Value })
		if i < 0 {
			best.Domains = append(best.Domains, DomainFit{Value: scope.Value})
			i = len(best.Domains) - 1
		}
		best.Domains[i].Fit = max(best.Domains[i].Fit, len(placed))
		slices.SortFunc(best.Domains, func(a, b DomainFit) int {
			return cmp.Or(cmp.Compare(b.Fit, a.Fit), cmp.Compare(a.Value, b.Value))
		})
	}
	if len(placed) >= best.Fit {
		best.Fit = len(placed)
		best.Unplaced = slices.DeleteFunc(s.choose(g), func(m int) bool { _, ok := placed[m]; return ok })
	}
}
