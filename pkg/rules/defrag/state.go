package defrag

import (
	"cmp"
	"slices"
)

// What to has for a pod, instead of the node that it moved to.
const (
	stays   = -1
	pushed  = -2 // it has to leave, and has no place yet
	nowhere = -1
)

// state is a problem with some pods moved and some members placed. What is done to it
// is undone in reverse order.
type state struct {
	*Problem
	columns int
	// free is what nodes have, node by node: members have taken their share, and pods that
	// have to leave have given back theirs.
	free []int64
	// weight makes columns comparable: what is scarce weighs most.
	weight []float64
	// on are the pods that may be moved by node, the biggest first, those of a kind
	// together.
	on   [][]int
	size []float64

	to []int
	// out are the pods that have to leave, or have left, in that order.
	out []int
	// moved and own are by group: how many of its pods are out, and what these alone cost.
	moved  []int
	own    []Cost
	groups int // of which a pod is out
	// low is the least that the pods that are out may cost in the end, with more of them.
	low Cost
}

func newState(p *Problem) *state {
	s := &state{
		Problem: p, columns: p.columns(),
		on: make([][]int, len(p.Nodes)), size: make([]float64, len(p.Pods)),
		to: make([]int, len(p.Pods)), moved: make([]int, len(p.Groups)), own: make([]Cost, len(p.Groups)),
	}
	s.free = make([]int64, 0, len(p.Nodes)*s.columns)
	for _, node := range p.Nodes {
		s.free = append(s.free, node.Free...)
	}
	s.weighColumns()
	for i, pod := range p.Pods {
		s.to[i], s.size[i] = stays, s.weightOf(pod.Request)
		s.on[pod.Node] = append(s.on[pod.Node], i)
	}
	for _, pods := range s.on {
		slices.SortFunc(pods, s.bigger)
	}
	return s
}

// weigh weights a column by how much of it is free on all nodes.
func (s *state) weighColumns() {
	s.weight = make([]float64, s.columns)
	for i, amount := range s.free {
		s.weight[i%s.columns] += float64(max(amount, 0))
	}
	for c, sum := range s.weight {
		s.weight[c] = 1 / (1 + sum)
	}
}

func (s *state) weightOf(request []int64) float64 {
	var sum float64
	for c, amount := range request {
		sum += float64(amount) * s.weight[c]
	}
	return sum
}

// bigger orders pods by: 1. size, big first; 2. kind; 3. index.
func (s *state) bigger(a, b int) int {
	return cmp.Or(cmp.Compare(s.size[b], s.size[a]), cmp.Compare(s.Pods[a].Kind, s.Pods[b].Kind), cmp.Compare(a, b))
}

// alike reports whether two pods stand for each other.
func (s *state) alike(a, b int) bool { return s.Pods[a].Kind == s.Pods[b].Kind }

func (s *state) at(node int) []int64 { return s.free[node*s.columns : (node+1)*s.columns] }

// push takes a pod off its node. The caller has to undo it, unless ok is false: a bound would be
// exceeded.
func (s *state) push(i int) (ok bool) {
	pod := &s.Pods[i]
	newGroup := pod.Group >= 0 && s.moved[pod.Group] == 0
	if len(s.out) >= s.Budget.MaxMoves || newGroup && s.groups >= s.Budget.MaxGroups || s.barred(pod) {
		return false
	}
	s.to[i] = pushed
	s.out = append(s.out, i)
	give(s.at(pod.Node), pod.Request)
	s.count(pod, 1)
	return true
}

// pull undoes the last push.
func (s *state) pull() {
	i := s.out[len(s.out)-1]
	pod := &s.Pods[i]
	s.out = s.out[:len(s.out)-1]
	s.to[i] = stays
	take(s.at(pod.Node), pod.Request)
	s.count(pod, -1)
}

// count adds a pod to those that are out, where n is 1, or subtracts it, where n is -1.
func (s *state) count(pod *Pod, n int) {
	own, g := pod.Cost.times(int64(n)), pod.Group
	if g < 0 {
		s.low = s.low.plus(own)
		return
	}
	s.low = s.low.minus(s.Groups[g].least(s.moved[g], s.own[g]))
	if s.moved[g] > 0 {
		s.groups--
	}
	s.moved[g] += n
	s.own[g] = s.own[g].plus(own)
	if s.moved[g] > 0 {
		s.groups++
	}
	s.low = s.low.plus(s.Groups[g].least(s.moved[g], s.own[g]))
}

// place gives a pod that is out its node.
func (s *state) place(i, node int) {
	pod := &s.Pods[i]
	s.to[i] = node
	take(s.at(node), pod.Request)
}

// unplace undoes place.
func (s *state) unplace(i int) {
	pod := &s.Pods[i]
	give(s.at(s.to[i]), pod.Request)
	s.to[i] = pushed
}

// price returns what it costs to push pods out, together; ok is false if a bound would be exceeded.
func (s *state) price(pods []int) (cost Cost, ok bool) {
	before, mark := s.low, len(s.out)
	ok = true
	for _, pod := range pods {
		if ok = s.push(pod); !ok {
			break
		}
	}
	cost = s.low.minus(before)
	s.pullTo(mark)
	return cost, ok
}

func (s *state) pullTo(mark int) {
	for len(s.out) > mark {
		s.pull()
	}
}
