package invariant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// node is a node by its name, also while it is away: pods stay bound to the name.
type node struct {
	name        string
	gone        bool
	cordoned    bool
	labels      map[string]string
	allocatable amounts
	// pods are the pods bound to it that have not ended, used is what they ask for.
	pods map[types.UID]*pod
	used amounts
	// over is whether it is oversold.
	over bool
	// lostAt is when it was last deleted or cordoned.
	lostAt moment
	past   history
}

func (c *Checker) node(name string) *node {
	n := c.nodes[name]
	if n == nil {
		n = &node{name: name, gone: true, pods: map[types.UID]*pod{}, used: amounts{}}
		c.nodes[name] = n
	}
	return n
}

// usage returns what is used of what there is.
func (n *node) usage() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(n.used)) {
		if n.used[name] != 0 {
			parts = append(parts, fmt.Sprintf("%s of %s %s", amountText(name, n.used[name]), amountText(name, n.allocatable[name]), name))
		}
	}
	if len(parts) == 0 {
		return "unused"
	}
	return strings.Join(parts, ", ")
}

// amountText returns an amount as users write it.
func amountText(name v1.ResourceName, n int64) string {
	switch {
	case name == v1.ResourceCPU:
		return fmt.Sprintf("%g", float64(n)/1000)
	case name == v1.ResourceMemory:
		return fmt.Sprintf("%dMi", n>>20)
	}
	return fmt.Sprint(n)
}

// judgeNode checks that no more is asked of a node than it has. What is asked of a node that is away
// is checked when it comes back.
func (c *Checker) judgeNode(n *node) {
	if n.gone || c.listing {
		return
	}
	var over []string
	for _, name := range slices.Sorted(maps.Keys(n.used)) {
		if n.used[name] > n.allocatable[name] {
			over = append(over, fmt.Sprintf("%s %s of %s", amountText(name, n.used[name]), name, amountText(name, n.allocatable[name])))
		}
	}
	if len(over) > 0 && !n.over {
		var pods []string
		for _, p := range n.pods {
			pods = append(pods, p.name)
		}
		slices.Sort(pods)
		c.violate(Oversold, "node "+n.name, c.now.Format(stamp), n.past, "its pods ask for %s: %s",
			strings.Join(over, ", "), strings.Join(pods, ", "))
	}
	n.over = len(over) > 0
}

func (o NodeSeen) apply(c *Checker) {
	n := c.node(o.Node.Name)
	if n.gone {
		c.note(&n.past, "node "+n.name, "there: %s", n.usage())
	}
	if o.Node.Spec.Unschedulable && !n.cordoned {
		c.note(&n.past, "node "+n.name, "cordoned")
		c.loseNode(n)
	}
	n.gone, n.cordoned = false, o.Node.Spec.Unschedulable
	n.labels, n.allocatable = o.Node.Labels, amountsOf(o.Node.Status.Allocatable)
	c.judgeNode(n)
}

func (o NodeGone) apply(c *Checker) {
	n := c.node(o.Name)
	if n.gone {
		return
	}
	n.gone = true
	c.note(&n.past, "node "+n.name, "deleted, with %d pods", len(n.pods))
	for _, p := range n.pods {
		p.lost = true
		c.changed(p.gang, "lost node "+n.name)
	}
	c.loseNode(n)
}

// loseNode takes in that a node takes no pods any more: what is being placed may have been promised
// room on it, and has to find other room.
func (c *Checker) loseNode(n *node) {
	n.lostAt = c.moment()
	for _, g := range c.active {
		if !mayNeed(g, n) {
			continue
		}
		g.roomLostAt = c.now
		if g.partial != nil {
			g.partial.doubt, g.partial.clock = "node "+n.name+" was lost", c.moment()
		}
	}
}
