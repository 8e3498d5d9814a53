package planner

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// reach is the set of nodes from which a volume is reachable.
type reach struct {
	selector *nodeaffinity.NodeSelector
	// key and values express the same if it is one label with one of some values, as for local volumes; otherwise key is
	// empty.
	key    string
	values []string
}

func reachOf(selector *v1.NodeSelector) (reach, error) {
	parsed, err := nodeaffinity.NewNodeSelector(selector)
	if err != nil {
		return reach{}, err
	}
	r := reach{selector: parsed}
	if terms := selector.NodeSelectorTerms; len(terms) == 1 && len(terms[0].MatchFields) == 0 &&
		len(terms[0].MatchExpressions) == 1 {
		if one := terms[0].MatchExpressions[0]; one.Operator == v1.NodeSelectorOpIn {
			r.key, r.values = one.Key, one.Values
		}
	}
	return r, nil
}

func (r reach) reachedFrom(node *v1.Node) bool {
	if r.key == "" {
		return r.selector.Match(node)
	}
	value, ok := node.Labels[r.key]
	return ok && slices.Contains(r.values, value)
}
