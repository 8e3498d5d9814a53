package defrag

import (
	"cmp"
	"slices"
)

// covering lists sets of pods of one node that make room together.
type covering struct {
	s      *state
	pods   []int
	rest   [][]int64 // what the pods from each on have together
	gap    []int64   // what is missing still
	chosen []int
	// most is how many sets are wanted, effort how many steps are left.
	most, effort int
	sets         [][]int
	cut          bool
}

// covers lists sets of pods on a node that have to leave so that a request fits, none with a pod
// that may stay. Of pods that stand for each other the first are taken. cut reports that not all
// sets are listed: then they are sets of big pods, and of cheap ones. left is what is left of the
// effort.
func (s *state) covers(node int, request []int64, most, effort int) (sets [][]int, left int, cut bool) {
	gap := make([]int64, s.columns)
	for c, amount := range request {
		if amount > 0 {
			gap[c] = max(0, amount-s.at(node)[c])
		}
	}
	var pods []int
	for _, pod := range s.on[node] {
		if s.to[pod] == stays && helps(s.Pods[pod].Request, gap) {
			pods = append(pods, pod)
		}
	}
	c := covering{s: s, pods: pods, gap: gap, most: most, effort: effort}
	c.list()
	if !c.cut {
		return c.sets, c.effort, false
	}
	cheap := covering{s: s, pods: slices.Clone(pods), gap: gap, most: most, effort: effort}
	slices.SortStableFunc(cheap.pods, func(a, b int) int { return s.price1(a).Compare(s.price1(b)) })
	cheap.list()
	return slices.Concat(c.sets, cheap.sets), min(c.effort, cheap.effort), true
}

// price1 returns what one more pod costs now.
func (s *state) price1(pod int) Cost {
	g := s.Pods[pod].Group
	if g < 0 {
		return s.Pods[pod].Cost
	}
	next := s.own[g].plus(s.Pods[pod].Cost)
	return s.Groups[g].least(s.moved[g]+1, next).minus(s.Groups[g].least(s.moved[g], s.own[g]))
}

func helps(request, gap []int64) bool {
	for c, missing := range gap {
		if missing > 0 && request[c] > 0 {
			return true
		}
	}
	return false
}

func (c *covering) list() {
	c.rest = make([][]int64, len(c.pods)+1)
	columns := len(c.gap)
	all := make([]int64, len(c.rest)*columns)
	for i := range c.rest {
		c.rest[i] = all[i*columns : (i+1)*columns]
	}
	for i := len(c.pods) - 1; i >= 0; i-- {
		copy(c.rest[i], c.rest[i+1])
		give(c.rest[i], c.s.Pods[c.pods[i]].Request)
	}
	c.from(0)
}

// from adds sets of the chosen pods and pods from index i on.
func (c *covering) from(i int) {
	if c.met() {
		if c.tight() {
			c.sets = append(c.sets, slices.Clone(c.chosen))
		}
		return
	}
	for ; i < len(c.pods); i++ {
		if len(c.sets) >= c.most || c.effort <= 0 {
			c.cut = true
			return
		}
		c.effort--
		if !c.reachable(i) {
			return
		}
		pod := c.pods[i]
		if i > 0 && c.s.alike(pod, c.pods[i-1]) && !slices.Contains(c.chosen, c.pods[i-1]) {
			continue
		}
		c.chosen = append(c.chosen, pod)
		take(c.gap, c.s.Pods[pod].Request)
		c.from(i + 1)
		give(c.gap, c.s.Pods[pod].Request)
		c.chosen = c.chosen[:len(c.chosen)-1]
	}
}

func (c *covering) met() bool {
	return !slices.ContainsFunc(c.gap, func(missing int64) bool { return missing > 0 })
}

// reachable reports whether all pods from index i on would be enough.
func (c *covering) reachable(i int) bool {
	for column, missing := range c.gap {
		if missing > c.rest[i][column] {
			return false
		}
	}
	return true
}

// tight reports whether all chosen pods are needed.
func (c *covering) tight() bool {
	for _, pod := range c.chosen {
		needed := false
		for column, amount := range c.s.Pods[pod].Request {
			needed = needed || c.gap[column]+amount > 0
		}
		if !needed {
			return false
		}
	}
	return true
}

// choice is a node for a pod or a member, with the pods that have to leave so that it may go there.
type choice struct {
	node int
	push []int
	cost Cost
	// size is that of the pods that have to leave, spare what is left on the node.
	size, spare float64
}

// compare orders choices by: 1. cost; 2. how many pods have to leave; 3. their size; 4. what is
// left on the node, little first; 5. node; 6. which pods have to leave.
func (c choice) compare(d choice) int {
	return cmp.Or(c.cost.Compare(d.cost), cmp.Compare(len(c.push), len(d.push)), cmp.Compare(c.size, d.size),
		cmp.Compare(c.spare, d.spare), cmp.Compare(c.node, d.node), slices.Compare(c.push, d.push))
}
