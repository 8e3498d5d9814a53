package victim

import (
	"cmp"
	"slices"
)

// Order ranks bundles by which goes first. The zero Order is Preempt's.
type Order struct {
	reclaim bool
	queues  func(a, b *Gang) int
	rank    func(*Gang) int
}

// Preempt returns the order for making room for a higher priority: 1. Safe first;
// 2. gang's priority, low first; 3. bundles that violate no PodDisruptionBudget first;
// 4. return on investment, high first; 5. age, the youngest first; 6. ID.
//
// Returns on investment that differ by no more than a threshold tie. So that this is
// an order, bundles equal in 1 to 3 are partitioned from the best down, each part led
// by the best that is left.
func Preempt() Order { return Order{} }

// Reclaim returns the order for taking back what queues have borrowed: 1. Safe first; 2.
// queues: the function is negative if a's queue is the one to take from first; 3. return
// on investment, as for Preempt; 4. gang's priority, low first; 5. bundles that violate
// no PodDisruptionBudget first; 6. age, the youngest first; 7. ID.
func Reclaim(queues func(a, b *Gang) int) Order { return Order{reclaim: true, queues: queues} }

// Ranked returns the order of a caller's own: 1. Safe first; 2. rank, low first; 3. ID.
func Ranked(rank func(*Gang) int) Order { return Order{rank: rank} }

// Sort sorts bundles by which goes first.
func (o Order) Sort(bundles []Bundle, threshold float64) {
	slices.SortFunc(bundles, func(a, b Bundle) int {
		return cmp.Or(o.before(a, b), cmp.Compare(b.ROI, a.ROI), o.after(a, b))
	})
	leader, part := 0, 0
	for i, b := range bundles {
		if i > 0 && (o.before(bundles[leader], b) != 0 || bundles[leader].ROI-b.ROI > threshold) {
			leader = i
			part++
		}
		bundles[i].part = part
	}
	slices.SortFunc(bundles, func(a, b Bundle) int { return cmp.Or(cmp.Compare(a.part, b.part), o.after(a, b)) })
}

// before compares what counts more than the return on investment.
func (o Order) before(a, b Bundle) int {
	kind := cmp.Compare(a.Kind, b.Kind)
	if o.rank != nil {
		return cmp.Or(kind, cmp.Compare(o.rank(a.Gang), o.rank(b.Gang)), cmp.Compare(a.Gang.ID, b.Gang.ID))
	}
	if o.reclaim {
		return cmp.Or(kind, o.queues(a.Gang, b.Gang))
	}
	return cmp.Or(kind, cmp.Compare(a.Gang.Priority, b.Gang.Priority), compareBools(a.violating, b.violating))
}

// after compares what counts less. It is total.
func (o Order) after(a, b Bundle) int {
	violating := compareBools(a.violating, b.violating)
	rest := cmp.Or(b.Gang.Created.Compare(a.Gang.Created), cmp.Compare(a.Gang.ID, b.Gang.ID), cmp.Compare(a.Kind, b.Kind), violating)
	if o.reclaim {
		return cmp.Or(cmp.Compare(a.Gang.Priority, b.Gang.Priority), violating, rest)
	}
	return rest
}

// equal reports whether two sorted bundles differ in nothing that counts more than
// PodDisruptionBudgets.
func (o Order) equal(a, b Bundle) bool {
	switch {
	case o.rank != nil:
		return a.Kind == b.Kind && a.Gang == b.Gang
	case o.reclaim:
		return a.part == b.part && a.Gang.Priority == b.Gang.Priority
	default:
		return a.Kind == b.Kind && a.Gang.Priority == b.Gang.Priority
	}
}
