package victim

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// spending is what evicted pods use up of PodDisruptionBudgets. Without budgets no pod violates any.
type spending struct {
	// left is how many more pods each budget lets go; negative if more have gone.
	left []int
	// claims are pods counted from the start, whether they go or not.
	claims map[types.UID]bool
}

func newSpending(allowed []int, claims ...Pod) *spending {
	s := &spending{left: slices.Clone(allowed)}
	s.spend(claims...)
	s.claims = make(map[types.UID]bool, len(claims))
	for _, pod := range claims {
		s.claims[pod.UID] = true
	}
	return s
}

// violatedBy reports whether others use up a budget that covers a pod.
func (s *spending) violatedBy(pod Pod) bool {
	if len(s.left) == 0 || s.claims[pod.UID] {
		return false
	}
	for budget := range pod.Guards {
		if s.left[budget] <= 0 {
			return true
		}
	}
	return false
}

// spend counts pods that go, whether they violate a budget or not.
func (s *spending) spend(pods ...Pod) { s.add(pods, -1) }

// undo undoes spend.
func (s *spending) undo(pods ...Pod) { s.add(pods, 1) }

func (s *spending) add(pods []Pod, n int) {
	if len(s.left) == 0 {
		return
	}
	for _, pod := range pods {
		if s.claims[pod.UID] {
			continue
		}
		for budget := range pod.Guards {
			s.left[budget] += n
		}
	}
}

// spendAllowed counts the pods that violate nothing, one after the other.
func (s *spending) spendAllowed(pods []Pod) (granted, violating []Pod) {
	for _, pod := range pods {
		if s.violatedBy(pod) {
			violating = append(violating, pod)
		} else {
			s.spend(pod)
			granted = append(granted, pod)
		}
	}
	return granted, violating
}

// markViolating finds the bundles that violate a budget once all earlier ones have gone; among equals those that
// violate none come first. A Safe bundle of which only some pods violate one is divided in two, which rank by their
// joint value. The bundles must be sorted, and the result must be sorted again.
func (s *spending) markViolating(order Order, bundles []Bundle) []Bundle {
	guarded := make([]Bundle, 0, len(bundles))
	var late []Pod // come after all equal bundles
	for i, b := range bundles {
		if i > 0 && !order.equal(bundles[i-1], b) {
			s.spend(late...)
			late = nil
		}
		granted, violating := s.spendAllowed(b.Pods)
		if b.Kind == Whole && len(violating) > 0 {
			s.undo(granted...)
			granted, violating = nil, b.Pods
		}
		if len(granted) > 0 {
			b.Pods = granted
			guarded = append(guarded, b)
		}
		if len(violating) > 0 {
			late = append(late, violating...)
			b.Pods, b.violating = violating, true
			guarded = append(guarded, b)
		}
	}
	return guarded
}

// joined joins bundles of one kind of a gang, and computes their values. Their pods are in the order of the bundles.
func joined(need Vector, bundles []Bundle) []Bundle {
	type key struct {
		gang string
		kind Kind
	}
	at := make(map[key]int, len(bundles))
	var list []Bundle
	for _, b := range bundles {
		id := key{b.Gang.ID, b.Kind}
		if i, ok := at[id]; ok {
			list[i].Pods = append(list[i].Pods, b.Pods...)
			continue
		}
		b.Pods, b.violating = slices.Clone(b.Pods), false
		at[id] = len(list)
		list = append(list, b)
	}
	for i, b := range list {
		list[i] = makeBundle(need, b)
	}
	return list
}
