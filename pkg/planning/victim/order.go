package victim

import (
	"cmp"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// Order ranks bundles by which goes first. The zero Order is Preempt's.
type Order struct {
	reclaim    bool
	queues     func(a, b *Gang) int
	overshoots func([]Pod) bool
	rank       func(*Gang) int
}

// Preempt returns the order of preemption for a higher priority: 1. Safe first; 2. gang's priority, low first; 3.
// bundles that violate no PodDisruptionBudget first; 4. return on investment, high first; 5. age, the youngest first;
// 6. ID.
//
// Returns on investment that differ by no more than a threshold tie. To keep the order transitive, bundles equal in 1
// to 3 are partitioned from the best down, each part led by the best that is left.
func Preempt() Order { return Order{} }

// Reclaim returns the order of taking back what queues have borrowed: 1. Safe first; 2. queues: the function is
// negative if a's queue loses first; 3. gangs that overshoot the share of their queue first: the function reports it of
// pods, all of a Whole gang, or one of a Safe bundle; nil if none does; 4. return on investment, as for Preempt; 5.
// gang's priority, low first; 6. bundles that violate no PodDisruptionBudget first; 7. age, the youngest first; 8. ID.
func Reclaim(queues func(a, b *Gang) int, overshoots func([]Pod) bool) Order {
	return Order{reclaim: true, queues: queues, overshoots: overshoots}
}

// Ranked returns an order defined by the caller: 1. Safe first; 2. rank, low first; 3. ID.
func Ranked(rank func(*Gang) int) Order { return Order{rank: rank} }

// Sort sorts bundles by which goes first.
func (o Order) Sort(bundles []Bundle, threshold float64) {
	for i := range bundles {
		bundles[i].overshoots = o.overshoots != nil && o.overshootsAny(bundles[i])
	}
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

// overshootsAny reports whether a Whole bundle, or any pod of a Safe one, overshoots.
func (o Order) overshootsAny(b Bundle) bool {
	if b.Kind == Whole {
		return o.overshoots(b.Gang.Pods)
	}
	return slices.ContainsFunc(b.Pods, func(pod Pod) bool { return o.overshoots([]Pod{pod}) })
}

// before compares the criteria above the return on investment.
func (o Order) before(a, b Bundle) int {
	kind := cmp.Compare(a.Kind, b.Kind)
	if o.rank != nil {
		return cmp.Or(kind, cmp.Compare(o.rank(a.Gang), o.rank(b.Gang)), cmp.Compare(a.Gang.ID, b.Gang.ID))
	}
	if o.reclaim {
		return cmp.Or(kind, o.queues(a.Gang, b.Gang), bools.Compare(b.overshoots, a.overshoots))
	}
	return cmp.Or(kind, cmp.Compare(a.Gang.Priority, b.Gang.Priority), bools.Compare(a.violating, b.violating))
}

// after compares the criteria below it. It is total.
func (o Order) after(a, b Bundle) int {
	violating := bools.Compare(a.violating, b.violating)
	rest := cmp.Or(b.Gang.Created.Compare(a.Gang.Created), cmp.Compare(a.Gang.ID, b.Gang.ID),
		cmp.Compare(a.Kind, b.Kind), violating)
	if o.reclaim {
		return cmp.Or(cmp.Compare(a.Gang.Priority, b.Gang.Priority), violating, rest)
	}
	return rest
}

// equal reports whether two sorted bundles are equal in all criteria above PodDisruptionBudgets.
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
