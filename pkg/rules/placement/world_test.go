package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// cluster is a World of plain numbers: nodes have free amounts of each resource,
// classes ask for amounts, and the score of a node is fixed.
type cluster struct {
	free   [][]int             // by node and resource
	ask    [][]int             // by class and resource
	score  [][]int             // by class and node, high is good; nil means all the same
	labels []map[string]string // by node; nil means none
	// refuses are nodes that a class may not be on, whatever room they have: a
	// filter that Slots does not know about.
	refuses map[[2]int]bool

	// floors are the amounts that gangs ask for in all, by gang and resource; what members that
	// were placed before have counts as standing.
	floors, standing map[int][]int
	classOf          []int // by member

	log []taking
	// failAfter is the number of Takes after which the world breaks; 0 means never.
	failAfter int
	takes     int
}

// taking is one member placed.
type taking struct{ member, class, node int }

var (
	_ World = &cluster{}

	errBroken = errors.New("the world is broken")
)

func (c *cluster) Slots(class, node int) int {
	least := 1 << 20
	for r, amount := range c.ask[class] {
		if amount > 0 {
			least = min(least, c.free[node][r]/amount)
		}
	}
	return max(0, least)
}

func (c *cluster) Label(node int, key string) (string, bool) {
	if c.labels == nil {
		return "", false
	}
	value, ok := c.labels[node][key]
	return value, ok
}

func (c *cluster) Mark() int { return len(c.log) }

func (c *cluster) Undo(_ context.Context, mark int) error {
	if mark > len(c.log) {
		return fmt.Errorf("undoing to %d: only %d are placed", mark, len(c.log))
	}
	for _, last := range slices.Backward(c.log[mark:]) {
		c.change(last, 1)
	}
	c.log = c.log[:mark]
	return nil
}

func (c *cluster) change(t taking, by int) {
	for r, amount := range c.ask[t.class] {
		c.free[t.node][r] += by * amount
	}
}

// fits reports what Slots bounds and what only a filter knows.
func (c *cluster) fits(class, node int) bool {
	return c.Slots(class, node) > 0 && !c.refuses[[2]int{class, node}]
}

func (c *cluster) Open(class int, scope []int, _ int, tight bool) Offers {
	o := &ranked{cluster: c, class: class, nodes: slices.Clone(scope)}
	slices.SortStableFunc(o.nodes, func(a, b int) int {
		if tight {
			return cmp.Compare(c.Slots(class, a), c.Slots(class, b))
		}
		return cmp.Compare(c.scoreOf(class, b), c.scoreOf(class, a))
	})
	return o
}

func (c *cluster) scoreOf(class, node int) int {
	if c.score == nil {
		return 0
	}
	return c.score[class][node]
}

// ranked offers nodes in a fixed order, each until it is full.
type ranked struct {
	*cluster
	class int
	nodes []int
}

func (o *ranked) Take(_ context.Context, member int) (int, bool, error) {
	if o.takes++; o.failAfter > 0 && o.takes > o.failAfter {
		return 0, false, errBroken
	}
	for len(o.nodes) > 0 && !o.fits(o.class, o.nodes[0]) {
		o.nodes = o.nodes[1:]
	}
	if len(o.nodes) == 0 {
		return 0, false, nil
	}
	t := taking{member: member, class: o.class, node: o.nodes[0]}
	o.change(t, -1)
	o.log = append(o.log, t)
	return t.node, true, nil
}

// Spare is exact: for every set of gangs there has to be as much as they lack, on the nodes that
// count for any of them.
func (c *cluster) LackingExtra(_ context.Context, floors []Extra) ([]int, error) {
	short := map[int]bool{}
	for set := 1; set < 1<<len(floors); set++ {
		for r := range c.ask[0] {
			lack, free, nodes := 0, 0, map[int]bool{}
			for i, f := range floors {
				if set>>i&1 == 0 {
					continue
				}
				lack += c.lacks(f, r)
				for _, node := range f.Nodes {
					nodes[node] = true
				}
			}
			for node := range nodes {
				free += c.free[node][r]
			}
			for i, f := range floors {
				if set>>i&1 == 1 && lack > free {
					short[f.Gang] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(short)), nil
}

// lacks returns what a gang asks for of a resource beyond its members.
func (c *cluster) lacks(f Extra, r int) int {
	want := c.floors[f.Gang]
	if want == nil {
		return 0
	}
	lack := want[r]
	if standing := c.standing[f.Gang]; standing != nil {
		lack -= standing[r]
	}
	for m := range f.Placed {
		lack -= c.ask[c.classOf[m]][r]
	}
	return max(0, lack)
}

// copied returns the cluster in its present state, with nothing to undo.
func (c *cluster) copied() *cluster {
	twin := *c
	twin.free = make([][]int, len(c.free))
	for i, free := range c.free {
		twin.free[i] = slices.Clone(free)
	}
	twin.log, twin.takes = nil, 0
	return &twin
}

// uniform returns a cluster of one resource, of which each node has the given amount, and of one
// class that asks for one.
func uniform(free ...int) *cluster {
	c := &cluster{ask: [][]int{{1}}}
	for _, amount := range free {
		c.free = append(c.free, []int{amount})
		c.labels = append(c.labels, map[string]string{})
	}
	return c
}

// in gives the nodes, in order, a value of a label; "" means none.
func (c *cluster) in(key string, values ...string) *cluster {
	for node, value := range values {
		if value != "" {
			c.labels[node][key] = value
		}
	}
	return c
}

// classes replaces the classes by classes that ask for the given amounts.
func (c *cluster) classes(asks ...int) *cluster {
	c.ask = nil
	for _, amount := range asks {
		c.ask = append(c.ask, []int{amount})
	}
	return c
}

func (c *cluster) nodes() []int {
	nodes := make([]int, len(c.free))
	for i := range nodes {
		nodes[i] = i
	}
	return nodes
}
