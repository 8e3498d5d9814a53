package pools

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// Class is pods that ask the same of nodes.
type Class struct {
	key         string
	tolerations *tolerations
	affinity    nodeaffinity.RequiredNodeAffinity
	// named are the labels that nodes have to have for these pods.
	named labels.Set
	// nodes are the names of the only nodes that could take them, as pods of daemons name one; the empty name stands for
	// any node.
	nodes []string
	pods  int
	// witness is a node of each pool that would take them; empty for none.
	witness []string
	pools   []string
}

// standard is where pods may go if there is only one pool.
var standard = []string{v1alpha1.DefaultPool}

// Pools returns the pools that the pods may use: those with a node that would take them, empty or
// not. They come in the order of the configuration, the default one last. If no node would, it is
// the pool that they name by its labels, else the default one. There is at least one; the list must
// not be changed.
func (c *Class) Pools() []string { return c.pools }

// Enter records a pod that waits or runs, and returns its class.
func (c *Cluster) Enter(pod *v1.Pod) *Class {
	key := c.keyOf(pod)
	class := c.classes[key]
	if class == nil {
		class = &Class{key: key, pools: standard}
		if c.several() {
			class.affinity, class.named = nodeaffinity.GetRequiredNodeAffinity(pod), namedBy(pod)
			class.witness = make([]string, len(c.pools))
			class.nodes = nodesOf(pod)
			c.index(class)
		}
		c.classes[key] = class
	}
	// Tolerations are counted pod by pod; all pods of a class have the same ones.
	class.tolerations = c.useTolerations(pod.Spec.Tolerations)
	if class.pods++; class.pods == 1 && c.several() {
		for at := range c.pools {
			class.witness[at] = c.search(class, at)
		}
		class.pools = c.poolsOf(class)
	}
	return class
}

// Leave records that a pod of a class is gone.
func (c *Cluster) Leave(class *Class) {
	if class.pods--; class.pods == 0 {
		delete(c.classes, class.key)
		c.unindex(class)
	}
	c.dropTolerations(class.tolerations)
}

// Is reports whether a pod is of a class.
func (c *Cluster) Is(pod *v1.Pod, class *Class) bool { return class.key == c.keyOf(pod) }

// keyOf returns a key for what a pod asks of nodes. Most ask for nothing.
func (c *Cluster) keyOf(pod *v1.Pod) string {
	_, key := lasting(pod.Spec.Tolerations)
	if !c.several() {
		return key
	}
	required := requiredBy(pod)
	if len(pod.Spec.NodeSelector) == 0 && required == nil {
		return key
	}
	asked, err := json.Marshal([]any{pod.Spec.NodeSelector, required})
	if err != nil {
		return key + " " + string(pod.UID) // lists and maps of strings always encode
	}
	return key + " " + string(asked)
}

func requiredBy(pod *v1.Pod) *v1.NodeSelector {
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		return affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// namedBy returns the labels for which a pod asks for one value.
func namedBy(pod *v1.Pod) labels.Set {
	named := labels.Set{}
	if required := requiredBy(pod); required != nil && len(required.NodeSelectorTerms) == 1 {
		for _, e := range required.NodeSelectorTerms[0].MatchExpressions {
			if e.Operator == v1.NodeSelectorOpIn && len(e.Values) == 1 {
				named[e.Key] = e.Values[0]
			}
		}
	}
	for key, value := range pod.Spec.NodeSelector {
		named[key] = value
	}
	return named
}

// nodesOf returns the names of the nodes that a pod asks for, each once; an empty one for any.
func nodesOf(pod *v1.Pod) []string {
	required := requiredBy(pod)
	if required == nil {
		return []string{""}
	}
	var names []string
	for _, term := range required.NodeSelectorTerms {
		at := slices.IndexFunc(term.MatchFields, func(r v1.NodeSelectorRequirement) bool {
			return r.Key == metav1.ObjectNameField && r.Operator == v1.NodeSelectorOpIn
		})
		if at < 0 {
			return []string{""}
		}
		names = append(names, term.MatchFields[at].Values...)
	}
	if len(names) == 0 {
		return []string{""}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// index makes changes of the nodes that could take its pods revise a class. Each daemon makes as
// many classes as there are nodes: a change of a node must not cost a look at all of them.
func (c *Cluster) index(class *Class) {
	for _, name := range class.nodes {
		nested.Set(c.byNode, name, class, true)
	}
}

func (c *Cluster) unindex(class *Class) {
	for _, name := range class.nodes {
		nested.Delete(c.byNode, name, class)
	}
}

// takes reports whether a node would take the pods of a class if nothing else was on it.
func (n *node) takes(class *Class) bool {
	if n.object.Spec.Unschedulable || n.taints != nil && !tolerateAll(class.tolerations.list, n.taints.list) {
		return false
	}
	fits, err := class.affinity.Match(n.object)
	return err == nil && fits // kube-scheduler refuses all nodes to a pod with a wrong expression
}

// search finds a node of a pool that takes a class; empty for none.
func (c *Cluster) search(class *Class, at int) string {
	if class.nodes[0] == "" {
		for name, n := range c.pools[at].nodes {
			if n.takes(class) {
				return name
			}
		}
	}
	for _, name := range class.nodes {
		if n := c.nodes[name]; n != nil && n.pool == at && n.takes(class) {
			return name
		}
	}
	return ""
}

// reviseAll revises all classes that a node could take. It returns the classes that may use other
// pools than before.
func (c *Cluster) reviseAll(name string, was, is *node) (changed []*Class) {
	for _, classes := range []map[*Class]bool{c.byNode[""], c.byNode[name]} {
		for class := range classes {
			if c.revise(class, name, was, is) {
				changed = append(changed, class)
			}
		}
	}
	return changed
}

// revise updates a class for a node that changed from was to is; nil if it is not there. It returns
// whether the class may use other pools than before.
func (c *Cluster) revise(class *Class, name string, was, is *node) bool {
	changed := false
	if was != nil && class.witness[was.pool] == name && (is == nil || is.pool != was.pool || !is.takes(class)) {
		class.witness[was.pool] = c.search(class, was.pool)
		changed = class.witness[was.pool] == ""
	}
	if is != nil && class.witness[is.pool] == "" && is.takes(class) {
		class.witness[is.pool] = name
		changed = true
	}
	if !changed {
		return false
	}
	before := class.pools
	class.pools = c.poolsOf(class)
	return !slices.Equal(before, class.pools)
}

func (c *Cluster) poolsOf(class *Class) []string {
	var pools []string
	for at, witness := range class.witness {
		if witness != "" {
			pools = append(pools, c.pools[at].name)
		}
	}
	if len(pools) > 0 {
		return pools
	}
	for _, p := range c.pools[:len(c.pools)-1] {
		if !p.selector.Empty() && p.selector.Matches(class.named) {
			return []string{p.name}
		}
	}
	return standard
}
