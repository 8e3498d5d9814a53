package pools

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// taints is a set of taints that keep pods off nodes, and the nodes that have exactly these.
type taints struct {
	list  []v1.Taint
	nodes map[string]*node
	// users is how many of the known sets of tolerations tolerate them by their keys.
	users int
}

// tolerations is a set of tolerations that pods have.
type tolerations struct {
	list []v1.Toleration
	// byKey are those of them that [ByKey] returns.
	byKey []v1.Toleration
	pods  int
}

// keepOff returns the taints that keep pods off a node, in order, and a key for them.
func keepOff(list []v1.Taint) ([]v1.Taint, string) {
	var kept []v1.Taint
	for _, taint := range list {
		if taint.Effect == v1.TaintEffectNoSchedule || taint.Effect == v1.TaintEffectNoExecute {
			kept = append(kept, taint)
		}
	}
	slices.SortFunc(kept, func(a, b v1.Taint) int { return strings.Compare(a.ToString(), b.ToString()) })
	var key strings.Builder
	for _, taint := range kept {
		key.WriteString(taint.ToString() + " ")
	}
	return kept, key.String()
}

// lasting returns the tolerations of a pod that let it stay, in order, and a key for them. A
// toleration with a time limit does not count: every pod has such for nodes that are not ready,
// which no pod can come to.
func lasting(list []v1.Toleration) ([]v1.Toleration, string) {
	var kept []v1.Toleration
	var keys []string
	for _, t := range list {
		if t.TolerationSeconds == nil && t.Effect != v1.TaintEffectPreferNoSchedule {
			kept = append(kept, t)
			keys = append(keys, fmt.Sprintf("%q%s%q%s", t.Key, t.Operator, t.Value, t.Effect))
		}
	}
	slices.Sort(keys)
	return kept, strings.Join(slices.Compact(keys), " ")
}

// ByKey returns the tolerations of a pod that let it stay on nodes with a taint whose key they name, and a key for all
// that let it stay. Daemons tolerate any taint, and that says nothing of what nodes are for.
func ByKey(list []v1.Toleration) (byKey []v1.Toleration, key string) {
	kept, key := lasting(list)
	return slices.DeleteFunc(kept, func(t v1.Toleration) bool { return t.Key == "" }), key
}

// Tolerate reports whether tolerations let a pod onto a node with some taints.
func Tolerate(list []v1.Toleration, taints []v1.Taint) bool {
	kept, _ := keepOff(taints)
	return tolerateAll(list, kept)
}

// tolerateAll reports whether each of some taints is tolerated.
func tolerateAll(list []v1.Toleration, taints []v1.Taint) bool {
	_, untolerated := corev1helpers.FindMatchingUntoleratedTaint(logr.Discard(), taints, list, nil, true)
	return !untolerated
}

// taintsOf returns the set of a node's taints; nil for none.
func (c *Cluster) taintsOf(list []v1.Taint) *taints {
	kept, key := keepOff(list)
	if key == "" {
		return nil
	}
	set := c.taints[key]
	if set == nil {
		set = &taints{list: kept, nodes: map[string]*node{}}
		c.taints[key] = set
		for _, t := range c.tolerations {
			if tolerateAll(t.byKey, set.list) {
				set.users++
			}
		}
	}
	return set
}

// forget removes a set of taints that no node has now.
func (c *Cluster) forget(set *taints) {
	if set == nil || len(set.nodes) > 0 {
		return
	}
	_, key := keepOff(set.list)
	delete(c.taints, key)
}

// useTolerations notes that one more pod has these tolerations.
func (c *Cluster) useTolerations(list []v1.Toleration) *tolerations {
	kept, key := lasting(list)
	t := c.tolerations[key]
	if t == nil {
		byKey, _ := ByKey(list)
		t = &tolerations{list: kept, byKey: byKey}
		c.tolerations[key] = t
		c.countUsers(t, 1)
	}
	t.pods++
	return t
}

// dropTolerations notes that one pod fewer has these tolerations.
func (c *Cluster) dropTolerations(t *tolerations) {
	if t.pods--; t.pods > 0 {
		return
	}
	_, key := lasting(t.list)
	delete(c.tolerations, key)
	c.countUsers(t, -1)
}

// countUsers adds n to the users of the taints that tolerations tolerate by their keys. Nodes whose taints have users
// from then on, or no more, count otherwise than before.
func (c *Cluster) countUsers(t *tolerations, n int) {
	for _, set := range c.taints {
		if !tolerateAll(t.byKey, set.list) {
			continue
		}
		before := set.users
		set.users += n
		if min(before, set.users) == 0 {
			for _, node := range set.nodes {
				c.share(node)
			}
		}
	}
}
