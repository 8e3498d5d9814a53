package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// wellKnown are the last parts of label keys that name levels of a topology.
var wellKnown = []string{"region", "zone", "datacenter", "spine", "block", "leaf", "rack"}

// deprecated begins the keys of labels that were replaced, and still stand beside their replacements.
const deprecated = "failure-domain.beta.kubernetes.io/"

// Levels returns the label keys of nodes that look like levels of a topology, by the last part of their names: region,
// zone, datacenter, spine, block, leaf or rack. The coarsest, which has the fewest domains, is first.
func Levels(nodes []*v1.Node) []string {
	domains := map[string]map[string]bool{}
	for _, node := range nodes {
		for key, value := range node.Labels {
			if !slices.Contains(wellKnown, topology.ShortKey(key)) || strings.HasPrefix(key, deprecated) {
				continue
			}
			nested.Set(domains, key, value, true)
		}
	}
	rank := func(key string) int { return slices.Index(wellKnown, topology.ShortKey(key)) }
	return slices.SortedFunc(maps.Keys(domains), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(domains[a]), len(domains[b])), cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
	})
}

// Place words where a node is in levels of a topology: "zone=z1, rack=r0"; empty where it has no label of them.
func Place(node *v1.Node, levels []string) string {
	var parts []string
	for _, key := range levels {
		if value := node.Labels[key]; value != "" {
			parts = append(parts, topology.ShortKey(key)+"="+value)
		}
	}
	return strings.Join(parts, ", ")
}
