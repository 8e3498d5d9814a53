package victim

import (
	"cmp"
	"math"
)

// Harm is what a selection does to the gangs that lose pods. It ranks equivalent selections, such as those of several
// domains.
type Harm struct {
	// Kind is the kind of the worst bundle; Safe also if no pod goes.
	Kind Kind
	// Priority is the highest among the gangs that lose a bundle of that kind; [math.MinInt32] if no pod goes.
	Priority int32
	// Violating is how many of the pods violate a PodDisruptionBudget.
	Violating int
	// Cost is the sum of the bundles' costs.
	Cost float64
	// Pods is how many pods go.
	Pods int
}

// Harm sums up the selection. Remnants, which are useless, do not count.
func (s Selection) Harm() Harm {
	h := Harm{Priority: math.MinInt32, Violating: s.Violating}
	for _, b := range s.Bundles {
		if b.Kind > h.Kind {
			h.Kind, h.Priority = b.Kind, math.MinInt32
		}
		if b.Kind == h.Kind {
			h.Priority = max(h.Priority, b.Gang.Priority)
		}
		h.Cost += b.Cost
		h.Pods += len(b.Pods)
	}
	return h
}

// CompareKind orders by kind and priority alone, less harm first: no convenience of the preemptor outweighs these.
func (h Harm) CompareKind(other Harm) int {
	return cmp.Or(cmp.Compare(h.Kind, other.Kind), cmp.Compare(h.Priority, other.Priority))
}

// Compare orders by less harm first: 1. kind; 2. priority; 3. pods that violate a
// PodDisruptionBudget; 4. cost; 5. pods.
func (h Harm) Compare(other Harm) int {
	return cmp.Or(h.CompareKind(other), cmp.Compare(h.Violating, other.Violating), cmp.Compare(h.Cost, other.Cost),
		cmp.Compare(h.Pods, other.Pods))
}
