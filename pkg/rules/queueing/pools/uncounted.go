package pools

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Uncounted is free capacity that is not shared, since no pod can come to the nodes that have it.
type Uncounted struct {
	Amount resource.Vector
	Nodes  int
	// Why is why not: "cordoned", or "taint maintenance": values may differ by node.
	Why string
}

// Uncounted returns the free capacity that is not shared, by the reason. It looks at each node.
func (c *Cluster) Uncounted() []Uncounted {
	byWhy := map[string]*Uncounted{}
	for name, n := range c.nodes {
		if c.usable(n) {
			continue
		}
		why := c.whyUnusable(n)
		if byWhy[why] == nil {
			byWhy[why] = &Uncounted{Amount: resource.Vector{}, Why: why}
		}
		byWhy[why].Nodes++
		for of, amount := range n.has {
			if free := amount - c.taken[name][of] - c.used[name][of]; free > 0 {
				byWhy[why].Amount[of] = resource.Plus(byWhy[why].Amount[of], free)
			}
		}
	}
	var list []Uncounted
	for _, why := range slices.Sorted(maps.Keys(byWhy)) {
		list = append(list, *byWhy[why])
	}
	slices.SortStableFunc(list, func(a, b Uncounted) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return list
}

// whyUnusable says why no pod can come to a node that is not usable.
func (c *Cluster) whyUnusable(n *node) string {
	if n.object.Spec.Unschedulable {
		return "cordoned"
	}
	var keys []string
	for _, taint := range n.taints.list {
		if tolerated := c.pools[n.pool].tolerations; len(tolerated) == 0 || !tolerateAll(tolerated, []v1.Taint{taint}) {
			keys = append(keys, taint.Key)
		}
	}
	return "taint " + strings.Join(keys, ", ")
}
