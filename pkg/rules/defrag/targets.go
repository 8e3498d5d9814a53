package defrag

import (
	"cmp"
	"slices"
)

// How much hosts looks at beyond what is asked for: nodes that lack room, and for each of them sets
// of pods, and steps to list those.
const (
	nearNodes   = 16
	nearMembers = 64
	setsPerNode = 8
	stepsPerSet = 50
)

// item is a pod or a member to place.
type item struct {
	pod         int // or negative
	part, class int
	request     []int64
	// key is the same for items that stand for each other.
	key int
	// depth is how many chains of pods that push each other led to this one.
	depth int
}

// nearNode is a node that lacks room, and how much.
type nearNode struct {
	node int
	gap  float64
}

// compare orders by: 1. how much is missing, little first; 2. node.
func (n nearNode) compare(m nearNode) int {
	return cmp.Or(cmp.Compare(n.gap, m.gap), cmp.Compare(n.node, m.node))
}

// shortlist is the best that were added, sorted, no more than most of them.
type shortlist[T any] struct {
	list    []T
	most    int
	compare func(a, b T) int
	// dropped: something that was added is not listed.
	dropped bool
}

func (l *shortlist[T]) full() bool { return len(l.list) == l.most }

// refuses reports whether something is no better than what is listed, and there is no place left.
func (l *shortlist[T]) refuses(x T) bool { return l.full() && l.compare(l.list[l.most-1], x) <= 0 }

func (l *shortlist[T]) add(x T) {
	l.dropped = l.dropped || l.full()
	if l.refuses(x) {
		return
	}
	if l.full() {
		l.list = l.list[:l.most-1]
	}
	i, _ := slices.BinarySearchFunc(l.list, x, l.compare)
	l.list = slices.Insert(l.list, i, x)
}

// hosts lists up to want nodes for an item, best first; cut reports whether there may be more.
func (s *search) hosts(it item, want int) (choices []choice, cut bool) {
	nodes := s.all
	if it.pod < 0 {
		nodes = s.Want[it.part].Domains[s.domain[it.part]]
	}
	roomy := s.roomy(it, nodes, want)
	if choices = roomy.list; roomy.full() {
		return choices, true
	}
	near := shortlist[nearNode]{most: nearNodes + 2*want, compare: nearNode.compare}
	if it.pod < 0 {
		near.most += nearMembers
	}
	s.tightNodes(it, nodes, &near)
	cut = near.dropped
	for _, n := range near.list {
		more, short := s.pushing(it, n.node, want)
		choices, cut = append(choices, more...), cut || short
	}
	slices.SortFunc(choices, choice.compare)
	if len(choices) > want {
		choices, cut = choices[:want], true
	}
	return choices, cut
}

// may reports whether, arithmetic aside, an item may be on a node.
func (s *search) may(it item, node int) bool {
	if s.banned[place{it.key, node}] > 0 {
		return false
	}
	if it.pod < 0 {
		return s.memberFits.ask(it.key, node, func() bool { return s.FitsMember(it.part, it.class, node) })
	}
	return s.podFits.ask(s.Pods[it.pod].Kind, node, func() bool { return s.Fits(it.pod, node) })
}

// roomy lists up to want nodes that have room, those with the least left over first.
func (s *search) roomy(it item, nodes []int, want int) shortlist[choice] {
	best := shortlist[choice]{most: want, compare: choice.compare}
	s.steps += len(nodes)
	for _, node := range nodes {
		if it.pod >= 0 && node == s.Pods[it.pod].Node {
			continue
		}
		free := s.at(node)
		if !Fits(free, it.request) {
			continue
		}
		c := choice{node: node}
		for column, amount := range free {
			c.spare += float64(max(amount, 0)) * s.weight[column]
		}
		if !best.refuses(c) && s.may(it, node) {
			best.add(c)
		}
	}
	return best
}

// tightNodes adds the nodes that lack room, if pods may push each other that far.
func (s *search) tightNodes(it item, nodes []int, near *shortlist[nearNode]) {
	if len(s.out) >= s.Budget.MaxMoves {
		return
	}
	if it.depth >= s.deepest {
		s.cut = true
		return
	}
	s.steps += len(nodes)
	for _, node := range nodes {
		if it.pod >= 0 && node == s.Pods[it.pod].Node || len(s.on[node]) == 0 {
			continue
		}
		if gap := s.gap(it, node); gap > 0 {
			near.add(nearNode{node, gap})
		}
	}
}

// gap returns how much room a node lacks for an item.
func (s *search) gap(it item, node int) float64 {
	var gap float64
	free := s.at(node)
	for c, amount := range it.request {
		if amount > 0 && free[c] < amount {
			gap += float64(amount-free[c]) * s.weight[c]
		}
	}
	return gap
}

// affordable returns what it costs to push pods out; ok is false if that would exceed a bound or be
// no better than the best plan.
func (s *search) affordable(pods []int) (cost Cost, ok bool) {
	s.steps += 2 * len(pods)
	cost, ok = s.price(pods)
	return cost, ok && !s.worse(s.low.plus(cost), len(s.out)+len(pods))
}

// pushing lists the ways to place an item on a node that other pods have to leave for it.
func (s *search) pushing(it item, node, want int) (choices []choice, cut bool) {
	if !s.may(it, node) {
		return nil, false
	}
	effort := stepsPerSet * want
	sets, left, cut := s.covers(node, it.request, max(setsPerNode, want), effort)
	s.steps += len(s.on[node]) + 2*(effort-left)
	for _, set := range sets {
		cost, ok := s.affordable(set)
		if !ok {
			continue
		}
		c := choice{node: node, push: set, cost: cost}
		for _, pod := range set {
			c.size += s.size[pod]
		}
		choices = append(choices, c)
	}
	return choices, cut
}

// answers remembers the results of Fits and FitsMember.
type answers struct {
	nodes int
	known map[int][]int8
}

func (a *answers) ask(key, node int, fits func() bool) bool {
	row := a.known[key]
	if row == nil {
		row = make([]int8, a.nodes)
		a.known[key] = row
	}
	if row[node] == 0 {
		row[node] = -1
		if fits() {
			row[node] = 1
		}
	}
	return row[node] > 0
}
