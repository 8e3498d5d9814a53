package placement

import (
	"cmp"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// reportedDomains is how many domains are tried only to report how far a gang came, although bounds rule them out.
const reportedDomains = 8

// parts orders the work: 1. gangs that require a topology, those that share a domain together; 2. gangs that prefer a
// layout; 3. the rest, jointly. Of required topologies the finer one comes first: where a gang is within a rack does
// not matter to one that needs a zone, but not the other way round. Gangs that need nothing are left out.
func (s *solver) parts() []part {
	var parts []part
	var rest, shared part
	for i, g := range s.Gangs {
		switch {
		case g.Min == 0:
		case g.Shared:
			shared = append(shared, i)
		case g.Required == "" && (len(g.Levels) == 0 || g.Custom):
			rest = append(rest, i)
		default:
			parts = append(parts, part{i})
		}
	}
	if len(shared) > 0 {
		parts = append(parts, shared)
	}
	slices.SortStableFunc(parts, func(a, b part) int {
		x, y := s.Gangs[a[0]], s.Gangs[b[0]]
		if x.Required == "" || y.Required == "" {
			return bools.Compare(x.Required == "", y.Required == "")
		}
		return cmp.Compare(s.coarseness(x.Required), s.coarseness(y.Required))
	})
	if len(rest) > 0 {
		parts = append(parts, rest)
	}
	return parts
}

// coarseness counts the pairs of nodes that share a domain. If every rack is inside one zone, it is smaller for racks.
func (s *solver) coarseness(key string) int {
	pairs := 0
	for _, d := range s.domainsOf(key) {
		pairs += len(d.Nodes) * len(d.Nodes)
	}
	return pairs
}

func (s *solver) label(key string) func(int) (string, bool) {
	return func(node int) (string, bool) { return s.world.Label(node, key) }
}

func (s *solver) domainsOf(key string) []topology.Domain {
	domains, ok := s.domains[key]
	if !ok {
		domains = topology.Domains(s.Nodes, s.label(key))
		s.domains[key] = domains
	}
	return domains
}

// scopes lists the domains of a part's required topology, in the order to try; one scope, all nodes, if it requires
// none.
func (s *solver) scopes(p part) []topology.Ranked {
	if s.Gangs[p[0]].Required == "" {
		// Without bounds: these would need a pass over all nodes.
		return []topology.Ranked{{Domain: topology.Domain{Nodes: s.Nodes}, Most: len(s.Members)}}
	}
	domains := s.candidates(p)
	if takers := s.takers[p[0]]; takers != nil {
		domains = slices.DeleteFunc(slices.Clone(domains), func(d topology.Domain) bool { return !takers[d.Value] })
	}
	mix, need := s.mixOf(p), s.need(p)
	ranked := make([]topology.Ranked, len(domains))
	for i, d := range domains {
		ranked[i] = s.rankDomain(d, need, mix)
	}
	topology.TightestFirst(ranked, need)
	s.compactFirst(p, ranked, mix)
	return ranked
}

// need returns how many members of a part must be placed.
func (s *solver) need(p part) int {
	need := 0
	for _, gang := range p {
		need += s.Gangs[gang].Min
	}
	return need
}

// mixOf returns the members of a part by class.
func (s *solver) mixOf(p part) []share {
	var members, chosen []int
	for _, gang := range p {
		if g := s.Gangs[gang]; g.Min > 0 {
			members, chosen = append(members, g.Members...), append(chosen, s.chooseMinimum(g, false)...)
		}
	}
	return s.mix(members, chosen)
}

// compactFirst moves to the front, among the domains that should take a whole gang, those in which it spreads over the
// fewest domains of its levels.
func (s *solver) compactFirst(p part, scopes []topology.Ranked, mix []share) {
	g := s.Gangs[p[0]]
	whole := slices.IndexFunc(scopes, func(scope topology.Ranked) bool { return scope.Slots < g.Min })
	if len(g.Levels) == 0 || len(p) > 1 || whole == 0 {
		return
	}
	if whole > 0 {
		scopes = scopes[:whole]
	}
	most := slices.MaxFunc(mix, func(a, b share) int { return cmp.Compare(a.want, b.want) })
	spread := map[string]int{}
	for _, scope := range scopes {
		t := s.grow(scope.Nodes, g)
		spread[scope.Value] = t.spread(t.root, 0, most.class, most.want)
	}
	slices.SortStableFunc(scopes, func(a, b topology.Ranked) int { return cmp.Compare(spread[a.Value], spread[b.Value]) })
}

// maySkip reports whether a domain need not be tried: it cannot take the gang, and how many members it takes is known,
// or is too few to matter to the explanation.
func (s *solver) maySkip(p part, scope topology.Ranked) bool {
	if s.mayTake(p, scope) {
		return false
	}
	fits := s.fits[p[0]]
	if _, known := fits[scope.Value]; known {
		return true
	}
	better := 0
	for _, fit := range fits {
		if fit >= scope.Most {
			better++
		}
	}
	return better >= reportedDomains
}

// mayTake reports whether bounds allow a scope to take a part.
func (s *solver) mayTake(p part, scope topology.Ranked) bool {
	return scope.Most >= s.need(p)
}

// candidates returns the domains that the gangs of a part may be in.
func (s *solver) candidates(p part) []topology.Domain {
	key := s.Gangs[p[0]].Required
	domains := s.domainsOf(key)
	value, pinned := s.fixedDomain(p, key)
	if !pinned {
		return domains
	}
	return slices.DeleteFunc(slices.Clone(domains), func(d topology.Domain) bool { return d.Value != value })
}

// fixedDomain returns the domain with placed members of a part, or of a gang that shares its domain.
func (s *solver) fixedDomain(p part, key string) (value string, ok bool) {
	if s.Gangs[p[0]].Shared {
		p = nil
		for gang, g := range s.Gangs {
			if g.Shared {
				p = append(p, gang)
			}
		}
	}
	for _, gang := range p {
		if value, ok := s.valueOn(s.Gangs[gang], key); ok {
			return value, true
		}
	}
	return "", false
}

// RequiredDomain returns the domain of its required topology in which a gang must be, since it has placed members
// there, or another gang that shares the domain has.
func RequiredDomain(w World, p Problem, gang int) (value string, ok bool) {
	return newSolver(w, p).fixedDomain(part{gang}, p.Gangs[gang].Required)
}

// valueOn returns the domain with placed members of the gang. If they are in several, which violates a required
// topology, it is that of the first of them.
func (s *solver) valueOn(g Gang, key string) (string, bool) {
	home, known := Level{key, WholeGang}.homes(g.On, s.world.Label)[0]
	if !known {
		return "", false
	}
	return s.world.Label(home, key)
}

// share is how many members of a class a gang has, and how many of them would make up its minimum.
type share struct{ class, have, want int }

// mix returns the shares of the classes of members, of which some are chosen for the minimum, in order.
func (s *solver) mix(members, chosen []int) []share {
	at := map[int]int{}
	var mix []share
	of := func(m int) *share {
		class := s.Members[m].Class
		i, ok := at[class]
		if !ok {
			i = len(mix)
			at[class] = i
			mix = append(mix, share{class: class})
		}
		return &mix[i]
	}
	for _, m := range members {
		of(m).have++
	}
	for _, m := range chosen {
		of(m).want++
	}
	return mix
}

// rankDomain bounds what a domain takes by the class with the least room for its share.
func (s *solver) rankDomain(d topology.Domain, need int, mix []share) topology.Ranked {
	s.effort -= len(d.Nodes) * len(mix) / slotsPerTake
	r := topology.Ranked{Domain: d, Slots: -1}
	for _, part := range mix {
		slots := 0
		for _, node := range d.Nodes {
			slots += s.world.Slots(part.class, node)
		}
		r.Most += min(part.have, slots)
		if part.want == 0 {
			continue
		}
		if takes := slots * need / part.want; r.Slots < 0 || takes < r.Slots {
			r.Slots = takes
		}
	}
	r.Slots = max(0, r.Slots)
	return r
}

// record records how far a gang came.
func (s *solver) record(gang int, scope string, placed map[int]int) {
	g, best := s.Gangs[gang], &s.best[gang]
	if s.fits[gang] == nil {
		s.fits[gang] = map[string]int{}
	}
	s.fits[gang][scope] = max(s.fits[gang][scope], len(placed))
	if len(placed) >= best.Fit {
		best.Fit = len(placed)
		left := slices.DeleteFunc(s.chooseMinimum(g, false), func(m int) bool { _, ok := placed[m]; return ok })
		best.Unplaced = left[:min(len(left), max(0, g.Min-len(placed)))]
	}
}

// outcomes returns what was recorded.
func (s *solver) outcomes() []Outcome {
	for i, g := range s.Gangs {
		if g.Required == "" || g.Min == 0 {
			continue
		}
		best := &s.best[i]
		for value, fit := range s.fits[i] {
			best.Domains = append(best.Domains, DomainFit{Value: value, Fit: fit})
		}
		slices.SortFunc(best.Domains, func(a, b DomainFit) int {
			return cmp.Or(cmp.Compare(b.Fit, a.Fit), cmp.Compare(a.Value, b.Value))
		})
		best.Untried = len(s.candidates(part{i})) - len(best.Domains)
	}
	return s.best
}
