package defrag

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
)

// everything is an allowance that does not bound the search.
const everything = 1 << 20

// mostChoices is how many choices there are at most for one item.
const mostChoices = 1 << 10

// allowances are how far the search strays from the greedy way, run after run: second choices count
// one, third and fourth ones two, and so on.
var allowances = []int{0, 1, 2, 3, 4, 6, 8, 10, everything}

// CheapestMoves finds the cheapest moves after which the waiting gang fits; of those that cost the same, the
// fewest. There are none if it fits already.
func CheapestMoves(p Problem) (Result, error) {
	if err := p.validate(); err != nil {
		return Result{}, fmt.Errorf("reading the problem: %w", err)
	}
	most := cmp.Or(max(p.Budget.Steps, 0), DefaultSteps)
	still := p
	still.Budget.MaxMoves = 0
	s := newSearch(&still)
	s.run(most / 10)
	if s.best == nil && p.Budget.MaxMoves > 0 && s.enough() {
		steps := s.steps
		s = newSearch(&p)
		s.steps = steps
		s.run(most)
	}
	r := Result{Found: s.best != nil, Exhaustive: !s.cut, Steps: s.steps}
	if !r.Found {
		r.Exhaustive = r.Exhaustive || !s.enough()
		return r, nil
	}
	r.Exhaustive = r.Exhaustive || len(s.best.Moves) == 0
	r.Plan = s.finished()
	if err := p.check(r.Plan); err != nil {
		return Result{}, fmt.Errorf("checking the plan that was found: %w", err)
	}
	return r, nil
}

// place is an item of a key on a node.
type place struct{ key, node int }

// search is a state, and what is left to do.
type search struct {
	*state
	all     []int  // nodes
	members []item // part by part, the biggest first
	next    int    // of members
	domain  []int  // of parts; nowhere is not chosen
	places  [][][]int
	depth   []int // of pods that are out
	keys    map[place]int
	// banned are places where an item need not be tried again, since everything with it there was
	// tried already.
	banned map[place]int
	// like has for each part the first of the parts that it is a twin of. taken are domains where a
	// part need not be tried again: everything with a twin of it there was tried already.
	like  []int
	taken map[place]int
	// areas are the areas of joins.
	areas                map[int]area
	memberFits, podFits  answers
	firstDomains         []int
	best                 *Plan
	steps, most, deepest int
	// extras is how many pods are out only so that the others find an order.
	extras int
	// cut: something was left untried.
	cut bool
}

// area is what the parts of a join are in, and how many of them.
type area struct{ in, parts int }

func newSearch(p *Problem) *search {
	s := &search{
		state: newState(p), all: make([]int, len(p.Nodes)), domain: make([]int, len(p.Want)),
		places: make([][][]int, len(p.Want)), depth: make([]int, len(p.Pods)), keys: map[place]int{}, banned: map[place]int{},
		like: make([]int, len(p.Want)), taken: map[place]int{}, areas: map[int]area{},
		memberFits: answers{len(p.Nodes), map[int][]int8{}}, podFits: answers{len(p.Nodes), map[int][]int8{}},
	}
	for i := range s.all {
		s.all[i] = i
	}
	key := 0
	for i, part := range p.Want {
		s.domain[i], s.like[i] = nowhere, i
		if part.Twin {
			s.like[i] = s.like[i-1]
		}
		s.places[i] = make([][]int, len(part.Classes))
		first := len(s.members)
		for j, class := range part.Classes {
			for range class.Count {
				s.members = append(s.members, item{pod: -1, part: i, class: j, request: class.Request, key: key})
			}
			key++
		}
		slices.SortStableFunc(s.members[first:], func(a, b item) int {
			return cmp.Compare(s.weightOf(b.request), s.weightOf(a.request))
		})
		if first == len(s.members) {
			s.domain[i] = 0
		}
	}
	for i, pod := range p.Pods {
		if id := (place{pod.Kind, pod.Node}); s.keys[id] == 0 {
			s.keys[id] = key + 1 + i
		}
	}
	return s
}

// enough reports whether there is room for the gang at all, if all room could be joined.
func (s *search) enough() bool {
	for c := range s.columns {
		var sum int64
		for _, node := range s.Nodes {
			sum += max(0, node.Free[c])
		}
		for _, m := range s.members {
			sum -= m.request[c]
			if sum < 0 && m.request[c] > 0 {
				return false
			}
		}
	}
	return true
}

func (s *search) run(most int) {
	s.most = most
	for _, allowance := range allowances {
		s.cut = false
		s.deepest = allowance + 2
		s.descend(allowance)
		if !s.cut || s.steps >= s.most {
			return
		}
	}
}

// descend places what is left to place.
func (s *search) descend(allowance int) {
	s.steps++
	switch {
	case s.hopeless():
	case s.steps >= s.most:
		s.cut = true
	case s.next < len(s.members):
		m := s.members[s.next]
		if s.domain[m.part] == nowhere {
			s.intoDomains(m.part, allowance)
			return
		}
		s.next++
		s.tryHosts(m, allowance)
		s.next--
	default:
		if pod := s.homeless(); pod >= 0 {
			s.tryHosts(s.itemOf(pod), allowance)
			return
		}
		s.arrive(allowance)
	}
}

// hopeless reports whether nothing better than the best plan can come.
func (s *search) hopeless() bool { return s.worse(s.low, len(s.out)) }

// worse reports whether plans that cost at least this much, with at least this many moves, are no
// better than the best one.
func (s *search) worse(cost Cost, moves int) bool {
	return s.best != nil && cmp.Or(cost.Compare(s.best.Cost), cmp.Compare(moves, len(s.best.Moves))) >= 0
}

// homeless returns the biggest pod that has to leave and has no place yet.
func (s *search) homeless() int {
	biggest := nowhere
	for _, pod := range s.out {
		if s.to[pod] == pushed && (biggest < 0 || s.bigger(pod, biggest) < 0) {
			biggest = pod
		}
	}
	return biggest
}

func (s *search) itemOf(pod int) item {
	p := &s.Pods[pod]
	return item{pod: pod, request: p.Request, key: s.keys[place{p.Kind, p.Node}], depth: s.depth[pod]}
}

// intoDomains tries the domains of a part. For all parts but the first, a domain that is not the
// best one uses up allowance.
func (s *search) intoDomains(part, allowance int) {
	var order []int
	if s.next == 0 && s.firstDomains != nil {
		order = s.firstDomains
	} else {
		order = s.rankDomains(part)
	}
	if s.next == 0 {
		s.firstDomains = order
	}
	tried := 0
	for i, domain := range order {
		left := allowance
		if s.next > 0 {
			left -= bits.Len(uint(i))
		}
		if left < 0 {
			s.cut = true
			break
		}
		s.choose(part, domain)
		s.descend(left)
		s.unchoose(part)
		s.taken[place{s.like[part], domain}]++
		tried++
	}
	for _, domain := range order[:tried] {
		s.taken[place{s.like[part], domain}]--
	}
}

// choose puts a part in one of its domains.
func (s *search) choose(part, domain int) {
	s.domain[part] = domain
	for _, join := range s.Want[part].Joins {
		s.areas[join.Name] = area{in: join.Area[domain], parts: s.areas[join.Name].parts + 1}
	}
}

// unchoose takes back choose.
func (s *search) unchoose(part int) {
	s.domain[part] = nowhere
	for _, join := range s.Want[part].Joins {
		a := s.areas[join.Name]
		a.parts--
		s.areas[join.Name] = a
	}
}

// open reports whether a part may be in a domain, given the parts that have theirs.
func (s *search) open(part, domain int) bool {
	if s.taken[place{s.like[part], domain}] > 0 {
		return false
	}
	return !slices.ContainsFunc(s.Want[part].Joins, func(join Join) bool {
		a := s.areas[join.Name]
		return a.parts > 0 && a.in != join.Area[domain]
	})
}

// rankDomains orders the domains of a part by the outcome of a greedy guess: 1. members without a
// place, few first; domains that there is no time to guess about come last; 2. cost; 3. how many
// pods have to leave; 4. index.
func (s *search) rankDomains(part int) []int {
	type rank struct {
		domain, missing, out int
		cost                 Cost
	}
	ranks := make([]rank, 0, len(s.Want[part].Domains))
	for domain := range s.Want[part].Domains {
		if !s.open(part, domain) {
			continue
		}
		s.domain[part] = domain
		r := rank{domain: domain, missing: len(s.members) + 1}
		if s.steps < s.most/2 {
			r.missing, r.out, r.cost = s.guess(part)
		}
		ranks = append(ranks, r)
	}
	s.domain[part] = nowhere
	slices.SortStableFunc(ranks, func(a, b rank) int {
		return cmp.Or(cmp.Compare(a.missing, b.missing), a.cost.Compare(b.cost), cmp.Compare(a.out, b.out))
	})
	order := make([]int, 0, len(ranks))
	for _, r := range ranks {
		order = append(order, r.domain)
	}
	return order
}

// guess places the members of a part greedily, and leaves nothing changed.
func (s *search) guess(part int) (missing, out int, cost Cost) {
	cut, deepest := s.cut, s.deepest
	s.deepest = max(1, s.deepest)
	var placed []choice
	var items []item
	for i := s.next; i < len(s.members) && s.members[i].part == part; {
		m, like := s.members[i], 1
		for i+like < len(s.members) && s.members[i+like].key == m.key {
			like++
		}
		chosen := s.guessAlike(m, like)
		if len(chosen) == 0 {
			missing++
			i++
			continue
		}
		for _, c := range chosen {
			items, placed = append(items, m), append(placed, c)
		}
		i += len(chosen)
	}
	out, cost = len(s.out), s.low
	for i := len(placed) - 1; i >= 0; i-- {
		s.undo(items[i], placed[i])
	}
	s.cut, s.deepest = cut, deepest
	return missing, out, cost
}

// guessAlike places up to count identical members, each on another node, by what each would cost as the first.
func (s *search) guessAlike(m item, count int) (placed []choice) {
	want := 1
	if count > 1 {
		want = setsPerNode * count
	}
	choices, _ := s.hosts(m, want)
	taken := map[int]bool{}
	for _, c := range choices {
		if taken[c.node] || len(placed) == count {
			continue
		}
		if _, ok := s.price(c.push); ok {
			s.apply(m, c)
			taken[c.node] = true
			placed = append(placed, c)
		}
	}
	return placed
}

// tryHosts tries an item on the nodes that it may be on, and goes on from each.
func (s *search) tryHosts(it item, allowance int) {
	choices, cut := s.hosts(it, 1<<min(allowance, bits.Len(mostChoices)-1))
	s.cut = s.cut || cut
	left := map[int]int{}
	if len(choices) > 1 {
		for _, c := range choices {
			left[c.node]++
		}
	}
	var bans []place
	for i, c := range choices {
		if bits.Len(uint(i)) > allowance {
			s.cut = true
			break
		}
		s.apply(it, c)
		s.descend(allowance - bits.Len(uint(i)))
		s.undo(it, c)
		if left[c.node]--; left[c.node] == 0 {
			bans = append(bans, place{it.key, c.node})
			s.banned[place{it.key, c.node}]++
		}
	}
	for _, ban := range bans {
		if s.banned[ban]--; s.banned[ban] == 0 {
			delete(s.banned, ban)
		}
	}
}

// apply places an item as chosen.
func (s *search) apply(it item, c choice) {
	for _, pod := range c.push {
		s.push(pod)
		s.depth[pod] = it.depth + 1
	}
	if it.pod < 0 {
		take(s.at(c.node), it.request)
		s.places[it.part][it.class] = append(s.places[it.part][it.class], c.node)
		return
	}
	s.place(it.pod, c.node)
}

// undo takes back apply.
func (s *search) undo(it item, c choice) {
	if it.pod < 0 {
		give(s.at(c.node), it.request)
		nodes := s.places[it.part][it.class]
		s.places[it.part][it.class] = nodes[:len(nodes)-1]
	} else {
		s.unplace(it.pod)
	}
	s.pullTo(len(s.out) - len(c.push))
}
