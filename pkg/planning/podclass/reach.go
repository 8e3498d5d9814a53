package podclass

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Reach is the set of nodes from which a volume is reachable.
type Reach struct {
	Selector *nodeaffinity.NodeSelector
	// Key and Values express the same if it is one label with one of some values, as for local volumes; otherwise Key is
	// empty.
	Key    string
	Values []string
}

// NewReach returns the nodes that a selector selects; none for all nodes. It fails if the selector cannot be parsed.
func NewReach(selector *v1.NodeSelector) (Reach, error) {
	parsed, err := nodeaffinity.NewNodeSelector(selector)
	if err != nil {
		return Reach{}, err
	}
	r := Reach{Selector: parsed}
	if terms := selector.NodeSelectorTerms; len(terms) == 1 && len(terms[0].MatchFields) == 0 &&
		len(terms[0].MatchExpressions) == 1 {
		if one := terms[0].MatchExpressions[0]; one.Operator == v1.NodeSelectorOpIn {
			r.Key, r.Values = one.Key, one.Values
		}
	}
	return r, nil
}

// ReachedFrom reports whether a node is one of them.
func (r Reach) ReachedFrom(node *v1.Node) bool {
	if r.Key == "" {
		return r.Selector.Match(node)
	}
	value, ok := node.Labels[r.Key]
	return ok && slices.Contains(r.Values, value)
}
