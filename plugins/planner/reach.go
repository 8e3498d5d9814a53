package planner

import (
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// reach is what a volume asks of a node.
type reach struct {
	selector *nodeaffinity.NodeSelector
	// key and values say the same where it is one label that has to have one of some values,
	// as for local volumes; else key is empty.
	key    string
	values []string
}

func reachOf(selector *v1.NodeSelector) (reach, error) {
	parsed, err := nodeaffinity.NewNodeSelector(selector)
	if err != nil {
		return reach{}, err
	}
	r := reach{selector: parsed}
	if terms := selector.NodeSelectorTerms; len(terms) == 1 && len(terms[0].MatchFields) == 0 && len(terms[0].MatchExpressions) == 1 {
		if one := terms[0].MatchExpressions[0]; one.Operator == v1.NodeSelectorOpIn {
			r.key, r.values = one.Key, one.Values
		}
	}
	return r, nil
}

func (r reach) has(node *v1.Node) bool {
	if r.key == "" {
		return r.selector.Match(node)
	}
	value, ok := node.Labels[r.key]
	return ok && slices.Contains(r.values, value)
}

// volumeSlots bounds how many members of a class a node takes by the volumes that reach it:
// those that their claims are bound to, and those that are left for claims that wait, where
// none are made. It does not know what members of the plan were given.
func (w *world) volumeSlots(class, node int) int {
	c := w.classes[class]
	if len(c.claims.reach) == 0 && len(c.claims.static) == 0 {
		return math.MaxInt32
	}
	if c.reached == nil {
		c.reached = make([]int32, w.tx.Len())
		for i := range c.reached {
			on := w.tx.Node(i).Node()
			if !slices.ContainsFunc(c.claims.reach, func(r reach) bool { return !r.has(on) }) {
				c.reached[i] = math.MaxInt32
			}
		}
		for _, name := range c.claims.static {
			for i, n := range w.supplyOf(name) {
				c.reached[i] = min(c.reached[i], n)
			}
		}
	}
	return int(c.reached[node])
}

// supplyOf counts, by node, the volumes of a storage class that no claim has yet.
func (w *world) supplyOf(class string) []int32 {
	if supply, ok := w.supply[class]; ok {
		return supply
	}
	supply := make([]int32, w.tx.Len())
	byLabel := map[string]map[string][]int{}
	nodesWith := func(key string) map[string][]int {
		if byLabel[key] == nil {
			byLabel[key] = map[string][]int{}
			for i := range supply {
				if value, ok := w.Label(i, key); ok {
					byLabel[key][value] = append(byLabel[key][value], i)
				}
			}
		}
		return byLabel[key]
	}
	volumes, err := w.storage.unboundOf(class)
	if err != nil {
		return slices.Repeat([]int32{math.MaxInt32}, w.tx.Len()) // the filters know
	}
	for _, pv := range volumes {
		var r reach
		if affinity := pv.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
			var err error
			if r, err = reachOf(affinity.Required); err != nil {
				continue // no filter lets it be used
			}
		}
		switch {
		case r.key != "":
			for _, value := range r.values {
				for _, i := range nodesWith(r.key)[value] {
					supply[i]++
				}
			}
		default:
			for i := range supply {
				if r.selector == nil || r.selector.Match(w.tx.Node(i).Node()) {
					supply[i]++
				}
			}
		}
	}
	if w.supply == nil {
		w.supply = map[string][]int32{}
	}
	w.supply[class] = supply
	return supply
}

// unboundOf lists the volumes of a storage class that no claim has yet.
func (s storage) unboundOf(class string) ([]*v1.PersistentVolume, error) {
	objects, err := s.unbound.ByIndex(unboundIndex, ofClass(class))
	if err != nil {
		return nil, fmt.Errorf("listing unbound volumes of class %s: %w", class, err)
	}
	volumes := make([]*v1.PersistentVolume, 0, len(objects))
	for _, object := range objects {
		if pv, ok := object.(*v1.PersistentVolume); ok {
			volumes = append(volumes, pv)
		}
	}
	return volumes, nil
}
