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
	// key is the same for items that stand for each other, negative for an item that is like no
	// other.
	key int
	// depth is how many chains of pods that push each other led to this one.
	depth int
}

// nearNode is a node that lacks room, and how much.
type nearNode struct {
	node, home int
	gap        float64
}

// compare orders by: 1. how much is missing, little first; 2. node.
func (n nearNode) compare(m nearNode) int {
	return cmp.Or(cmp.Compare(n.gap, m.gap), cmp.Compare(n.node, m.node))
}

// nears are the nodes that lack the least, sorted, no more than most of them.
type nears struct {
	list []nearNode
	most int
	cut  bool
}

func (l *nears) add(n nearNode) {
	if len(l.list) == l.most {
		l.cut = true
		if l.list[l.most-1].compare(n) <= 0 {
			return
		}
		l.list = l.list[:l.most-1]
	}
	i, _ := slices.BinarySearchFunc(l.list, n, nearNode.compare)
	l.list = slices.Insert(l.list, i, n)
}

// hosts lists up to want nodes for an item, best first; cut reports whether there may be more.
func (s *search) hosts(it item, want int) (choices []choice, cut bool) {
	nodes, home := s.ground(it)
	choices, cut = s.roomy(it, nodes, home, want)
	if cut {
		return choices, true
	}
	near := nears{most: nearNodes + 2*want}
	if it.pod < 0 {
		near.most += nearMembers
	}
	s.tightNodes(it, nodes, home, &near)
	if it.pod >= 0 && s.bound(it.pod) && s.home[s.Pods[it.pod].Group] == nowhere {
		s.otherSets(it, home, &near)
	}
	cut = near.cut
	for _, n := range near.list {
		more, short := s.pushing(it, n, want)
		choices, cut = append(choices, more...), cut || short
	}
	slices.SortFunc(choices, choice.compare)
	if len(choices) > want {
		choices, cut = choices[:want], true
	}
	return choices, cut
}

// ground returns the nodes where an item may be without other pods of its group following, and
// which set of the group they are.
func (s *search) ground(it item) (nodes []int, home int) {
	if it.pod < 0 {
		return s.Want[it.part].Domains[s.domain[it.part]], nowhere
	}
	if !s.bound(it.pod) {
		return s.all, nowhere
	}
	group := s.Pods[it.pod].Group
	if home = s.home[group]; home == nowhere {
		home = s.residence(group)
	}
	if home == nowhere {
		return nil, nowhere
	}
	return s.Groups[group].Within[home], home
}

// may reports whether, arithmetic aside, an item may be on a node.
func (s *search) may(it item, node int) bool {
	if it.key >= 0 && s.banned[place{it.key, node}] > 0 {
		return false
	}
	if it.pod < 0 {
		return s.FitsMember == nil ||
			s.memberFits.ask(it.key, node, func() bool { return s.fitsMember(it.part, it.class, node) })
	}
	if s.Fits == nil {
		return true
	}
	kind := s.Pods[it.pod].Kind
	if kind < 0 {
		kind = -1 - it.pod
	}
	return s.podFits.ask(kind, node, func() bool { return s.fits(it.pod, node) })
}

// roomy lists the nodes that have room, those with the least left over first.
func (s *search) roomy(it item, nodes []int, home, want int) (choices []choice, cut bool) {
	s.steps += len(nodes)
	for _, node := range nodes {
		if it.pod >= 0 && node == s.Pods[it.pod].Node {
			continue
		}
		free := s.at(node)
		if !Fits(free, it.request) {
			continue
		}
		c := choice{node: node, home: home}
		for column, amount := range free {
			c.spare += float64(max(amount, 0)) * s.weight[column]
		}
		full := len(choices) == want
		if full && choices[want-1].compare(c) < 0 {
			cut = true
			continue
		}
		if !s.may(it, node) {
			continue
		}
		if full {
			cut = true
			choices = choices[:want-1]
		}
		i, _ := slices.BinarySearchFunc(choices, c, choice.compare)
		choices = slices.Insert(choices, i, c)
	}
	return choices, cut || len(choices) == want
}

// tightNodes adds the nodes that lack room, if pods may push each other that far.
func (s *search) tightNodes(it item, nodes []int, home int, near *nears) {
	if over(len(s.out)+1, s.Budget.MaxMoves) {
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
			near.add(nearNode{node, home, gap})
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

// otherSets adds the nodes of the sets that a pod's whole group would have to go to.
func (s *search) otherSets(it item, home int, near *nears) {
	group := s.Pods[it.pod].Group
	for set, nodes := range s.Groups[group].Within {
		if set == home {
			continue
		}
		follow, ok := s.followers(group, set)
		s.steps += len(s.of[group])
		if !ok {
			continue
		}
		if _, ok := s.affordable(follow); !ok {
			continue
		}
		s.steps += len(nodes)
		for _, node := range nodes {
			if node != s.Pods[it.pod].Node && s.gap(it, node) == 0 {
				near.add(nearNode{node, set, 0})
			}
		}
		s.tightNodes(it, nodes, set, near)
	}
}

// affordable returns what it costs to push pods out; ok is false if that would exceed a bound or be
// no better than the best plan.
func (s *search) affordable(pods []int) (cost Cost, ok bool) {
	s.steps += 2 * len(pods)
	cost, ok = s.price(pods)
	return cost, ok && !s.worse(s.low.plus(cost), len(s.out)+len(pods))
}

// pushing lists the ways to place an item on a node that other pods have to leave for it, or that
// its group has to follow it to.
func (s *search) pushing(it item, n nearNode, want int) (choices []choice, cut bool) {
	if !s.may(it, n.node) {
		return nil, false
	}
	var follow []int
	if it.pod >= 0 && n.home != nowhere && s.home[s.Pods[it.pod].Group] == nowhere {
		follow, _ = s.followers(s.Pods[it.pod].Group, n.home)
	}
	sets := [][]int{nil}
	if n.gap > 0 {
		var left int
		effort := stepsPerSet * want
		sets, left, cut = s.covers(n.node, it.request, max(setsPerNode, want), effort)
		s.steps += len(s.on[n.node]) + 2*(effort-left)
	}
	for _, set := range sets {
		c := choice{node: n.node, push: set, home: n.home}
		if len(follow) > 0 {
			c.push = slices.Concat(follow, set)
		}
		cost, ok := s.affordable(c.push)
		if !ok {
			continue
		}
		c.cost = cost
		for _, pod := range c.push {
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
