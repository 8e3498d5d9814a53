package pools

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Cluster is the nodes, what pods of other schedulers have of them, and what the pods that share
// the rest ask of nodes.
type Cluster struct {
	// pools are the pools of the configuration, and the default one, which takes every node, last.
	pools []pool
	nodes map[string]*node
	// foreign is what pods of other schedulers have, and taken its sum by node; used is what the
	// pods that share have, by node. Both also cover nodes that are not known.
	foreign     map[types.UID]foreign
	taken, used map[string]resource.Vector
	taints      map[string]*taints
	tolerations map[string]*tolerations
	classes     map[string]*Class
	// byNode are the classes by the names of the nodes that could take them, see [Class]. It is empty if there is only one
	// pool.
	byNode map[string]map[*Class]bool
	total  resource.Vector
	// unlimited are the resources of which more can be allocated than nodes have.
	unlimited map[v1.ResourceName]bool
}

// pool is a pool of the configuration, or the default one.
type pool struct {
	name        string
	selector    labels.Selector
	tolerations []v1.Toleration
	nodes       map[string]*node
}

// node is a known node.
type node struct {
	object *v1.Node
	has    resource.Vector
	pool   int
	taints *taints // nil for none
	// shared is what it adds to the total.
	shared resource.Vector
}

// foreign is what a pod of another scheduler has.
type foreign struct {
	node   string
	amount resource.Vector
}

// New returns a cluster without nodes. The pools have to be valid.
func New(pools []config.Pool) (*Cluster, error) {
	c := &Cluster{
		nodes: map[string]*node{}, foreign: map[types.UID]foreign{}, taken: map[string]resource.Vector{},
		used:   map[string]resource.Vector{},
		taints: map[string]*taints{}, tolerations: map[string]*tolerations{}, classes: map[string]*Class{},
		byNode: map[string]map[*Class]bool{}, total: resource.Vector{},
	}
	for _, p := range pools {
		selector, err := metav1.LabelSelectorAsSelector(p.NodeSelector)
		if err != nil {
			return nil, fmt.Errorf("reading the node selector of pool %q: %w", p.Name, err)
		}
		c.pools = append(c.pools, pool{name: p.Name, selector: selector, tolerations: p.Tolerations,
			nodes: map[string]*node{}})
	}
	c.pools = append(c.pools, pool{name: v1alpha1.DefaultPool, selector: labels.Everything(), nodes: map[string]*node{}})
	return c, nil
}

// several reports whether there are pools besides the default one.
func (c *Cluster) several() bool { return len(c.pools) > 1 }

// Total returns the capacity to share, as amounts of pools ([resource.NameInPool]). It must not be
// changed, and changes with the cluster.
func (c *Cluster) Total() resource.Vector { return c.total }

// Pool returns the pool of a node; false for a node that is not known.
func (c *Cluster) Pool(name string) (string, bool) {
	n := c.nodes[name]
	if n == nil {
		return "", false
	}
	return c.pools[n.pool].name, true
}

// Charge returns how an amount that pods of a class ask for is counted: in the pool of the node that they have, or that
// is kept for them; else in the first pool that they may use, or instead in one of the others. Where a pod names its
// node it counts for no more than [Cluster.On] says, because that may be any node.
func (c *Cluster) Charge(amount resource.Vector, class *Class, node string,
	named bool) (charged resource.Vector, instead []resource.Vector) {
	switch pool, known := c.Pool(node); {
	case named:
		return c.On(node, amount).In(pool), nil
	case known:
		return amount.In(pool), nil
	}
	pools := class.Pools()
	for _, other := range pools[1:] {
		instead = append(instead, amount.In(other))
	}
	return amount.In(pools[0]), instead
}

// On returns an amount limited to what a node has, resource by resource; it is empty if there is no such node.
func (c *Cluster) On(name string, amount resource.Vector) resource.Vector {
	there := resource.Vector{}
	if n := c.nodes[name]; n != nil {
		for of := range amount {
			least := amount[of]
			if !c.unlimited[of] {
				least = min(least, n.has[of])
			}
			if least > 0 {
				there[of] = least
			}
		}
	}
	return there
}

// SetUnlimited sets the resources of which more can be allocated than nodes have: there is as much of them to share in
// every pool as anybody asks for. It reports whether they have changed.
func (c *Cluster) SetUnlimited(names map[v1.ResourceName]bool) bool {
	if maps.Equal(c.unlimited, names) {
		return false
	}
	c.addUnlimited(-1)
	c.unlimited = maps.Clone(names)
	c.addUnlimited(1)
	return true
}

func (c *Cluster) addUnlimited(times int64) {
	for name := range c.unlimited {
		for _, p := range c.pools {
			of := resource.NameInPool(p.name, name)
			if c.total[of] += times * resource.MaxOfOne; c.total[of] == 0 {
				delete(c.total, of)
			}
		}
	}
}

// PoolOf returns the pool of a node by its labels. It may be called concurrently.
func (c *Cluster) PoolOf(object *v1.Node) string { return c.pools[c.find(object)].name }

func (c *Cluster) find(object *v1.Node) int {
	if !c.several() {
		return 0
	}
	return slices.IndexFunc(c.pools, func(p pool) bool { return p.selector.Matches(labels.Set(object.Labels)) })
}

// SetNode adds or updates a node. It returns whether the pods on it count otherwise than before, since it is in another
// pool or has other amounts, and the classes of pods that may use other pools than before.
func (c *Cluster) SetNode(object *v1.Node) (recount bool, changed []*Class) {
	before := c.nodes[object.Name]
	if before != nil && sameKind(before.object, object) {
		has := resource.OfNode(object)
		recount = !maps.Equal(before.has, has)
		before.object, before.has = object, has
		c.share(before)
		return recount, nil
	}
	n := &node{object: object, has: resource.OfNode(object), pool: c.find(object)}
	if before != nil {
		c.remove(before)
	}
	if n.taints = c.taintsOf(object.Spec.Taints); n.taints != nil {
		n.taints.nodes[object.Name] = n
	}
	if before != nil && before.taints != n.taints {
		c.forget(before.taints)
	}
	c.nodes[object.Name], c.pools[n.pool].nodes[object.Name] = n, n
	c.share(n)
	return before == nil || before.pool != n.pool || !maps.Equal(before.has, n.has), c.reviseAll(object.Name, before, n)
}

// sameKind reports whether a node takes the same pods as before.
func sameKind(a, b *v1.Node) bool {
	return a.Spec.Unschedulable == b.Spec.Unschedulable && maps.Equal(a.Labels, b.Labels) &&
		slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, func(a, b v1.Taint) bool {
			return a.MatchTaint(&b) && a.Value == b.Value
		})
}

// DropNode records that a node is gone. It returns the classes of pods that may use other pools
// than before.
func (c *Cluster) DropNode(name string) (changed []*Class) {
	n := c.nodes[name]
	if n == nil {
		return nil
	}
	c.remove(n)
	c.forget(n.taints)
	return c.reviseAll(name, n, nil)
}

func (c *Cluster) remove(n *node) {
	name := n.object.Name
	c.total.Add(n.shared, -1)
	delete(c.nodes, name)
	delete(c.pools[n.pool].nodes, name)
	if n.taints != nil {
		delete(n.taints.nodes, name)
	}
}

// share counts what a node adds to the total as it is now.
func (c *Cluster) share(n *node) {
	c.total.Add(n.shared, -1)
	n.shared = c.sharedOf(n)
	c.total.Add(n.shared, 1)
}

// sharedOf returns what a node has to share. If no pod could come to the node, that is what the
// pods on it have: it counts as used, and would otherwise be missing to the others.
func (c *Cluster) sharedOf(n *node) resource.Vector {
	name, shared := n.object.Name, resource.Vector{}
	if c.usable(n) {
		for of, amount := range n.has {
			shared[of] = max(0, amount-c.taken[name][of]) // others may have been given more than there is
		}
	} else {
		for of, amount := range c.used[name] {
			shared[of] = min(amount, n.has[of])
		}
	}
	return shared.In(c.pools[n.pool].name)
}

func (c *Cluster) usable(n *node) bool {
	switch tolerated := c.pools[n.pool].tolerations; {
	case n.object.Spec.Unschedulable:
		return false
	case n.taints == nil:
		return true
	case len(tolerated) > 0:
		return tolerateAll(tolerated, n.taints.list)
	default:
		return n.taints.users > 0
	}
}

// Use records that the pods that share have this much more of a node, or less with a negative
// times. It returns whether that may change what is shared.
func (c *Cluster) Use(name string, amount resource.Vector, times int64) bool {
	resource.AddTo(c.used, name, amount, times)
	n := c.nodes[name]
	if n == nil || c.usable(n) {
		return false
	}
	c.share(n)
	return true
}

// SetForeign records what a pod of another scheduler has of a node. It returns false if that was known.
func (c *Cluster) SetForeign(uid types.UID, node string, amount resource.Vector) bool {
	if f, ok := c.foreign[uid]; ok && f.node == node && maps.Equal(f.amount, amount) {
		return false
	}
	c.DropForeign(uid)
	c.foreign[uid] = foreign{node, amount}
	c.take(node, amount, 1)
	return true
}

// DropForeign records that such a pod is gone. It returns false if it was not known.
func (c *Cluster) DropForeign(uid types.UID) bool {
	f, ok := c.foreign[uid]
	if ok {
		delete(c.foreign, uid)
		c.take(f.node, f.amount, -1)
	}
	return ok
}

func (c *Cluster) take(name string, amount resource.Vector, times int64) {
	resource.AddTo(c.taken, name, amount, times)
	if n := c.nodes[name]; n != nil {
		c.share(n)
	}
}
