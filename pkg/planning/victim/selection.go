package victim

import (
	"errors"
	"fmt"
	"slices"
)

// Trial is the caller's simulation. The same pod is never removed twice without being restored.
type Trial interface {
	// Remove takes pods off their nodes.
	Remove(pods []Pod) error
	// Restore brings them back, each exactly as it was.
	Restore(pods []Pod) error
	// MayFit returns false if sums rule out that the preemptor fits now. It is cheap.
	MayFit() bool
	// Fits reports whether the whole minimum of the preemptor can be placed now.
	Fits() (bool, error)
}

// Problem is what to choose from.
type Problem struct {
	// Need is the total request of the preemptor's minimum.
	Need Vector
	// Gangs are the gangs with pods in the domain, each with all its pods.
	Gangs []Gang
	// Order ranks them.
	Order Order
	// Threshold is the difference in return on investment that does not count, 0 or more; 0.05 is a good choice.
	Threshold float64
	// Budget returns a fresh budget for one choice; nil for no limit. It is charged for victims that let the preemptor
	// fit, not for the first in the order.
	Budget func() Budget
	// Allowed is how many more disruptions each PodDisruptionBudget allows. A pod violates one only if the other victims
	// use it up. Such pods go last among equals; a PodDisruptionBudget never forbids.
	Allowed []int
	// Attracts reports whether a required affinity of the preemptor selects a pod: if it does not fit without all
	// candidates, these stay. Nil for no affinity.
	Attracts func(Pod) bool
	// Expired reports that time is up: the search ends with the best choice so far. The first choice, as far as sums tell
	// it, is made in any case; nothing asks before its first trial. Nil for no limit.
	Expired func() bool
}

// Selection is the pods to evict.
type Selection struct {
	// Bundles are the decisions, in order, with the pods that go by each.
	Bundles []Bundle
	// Remnants are the other pods of broken gangs that lose pods: what they keep is wasted. The preemptor does not need
	// their capacity.
	Remnants []Pod
	// Violating is how many of the victims violate a PodDisruptionBudget that those before them have used up.
	Violating int
	// CutShort: time was up before the search ended. Victims found suffice, but may be more than needed; if none were
	// found there may be some.
	CutShort bool
	// OverBudget: the preemptor would fit without candidates that the budget grants one by one but not together; no choice
	// within the budget was found.
	OverBudget bool
}

// Pods returns the victims.
func (s Selection) Pods() []Pod {
	var pods []Pod
	for _, b := range s.Bundles {
		pods = append(pods, b.Pods...)
	}
	return pods
}

// Gain returns the sum of the bundles' gains.
func (s Selection) Gain() (sum float64) {
	for _, b := range s.Bundles {
		sum += b.Gain
	}
	return sum
}

// Select chooses victims. It returns false, with nothing chosen, if the preemptor would not fit even without all
// candidates, or all but those that attract it, or the search was cut short before it fitted. The selection is empty if
// it fits already. If Select returns true, the victims are removed in the trial.
//
// To choose k of n candidates it runs about k log n trials, k + 2 log n if the first k suffice, a few where MayFit
// tells what is missing, and twice as many if a victim violates a PodDisruptionBudget. An error of the trial ends the
// selection.
func (p Problem) Select(trial Trial) (Selection, bool, error) {
	first, found, err := p.choose(trial, nil, nil)
	if err != nil || !found {
		return first, false, err
	}
	first.CutShort = first.CutShort || first.Violating > 0 && p.Expired != nil && p.Expired()
	if first.Violating == 0 || first.CutShort {
		return first, true, nil
	}
	// Other victims may violate less. Victims of the first choice that violate nothing have a claim on their budgets: they
	// are known to help.
	if err := trial.Restore(first.Pods()); err != nil {
		return Selection{}, false, fmt.Errorf("restoring the first choice: %w", err)
	}
	_, granted := first.violations(p.Allowed)
	second, found, err := p.choose(trial, p.Allowed, granted)
	if err != nil {
		return Selection{}, false, err
	}
	first.CutShort = second.CutShort
	if found && second.Harm().Compare(first.Harm()) < 0 {
		return second, true, nil
	}
	if err := errors.Join(trial.Restore(second.Pods()), trial.Remove(first.Pods())); err != nil {
		return Selection{}, false, fmt.Errorf("going back to the first choice: %w", err)
	}
	return first, true, nil
}

// choose chooses victims, given what PodDisruptionBudgets allow and the pods with a claim on them. If it finds none,
// none is removed in the trial.
func (p Problem) choose(trial Trial, allowed []int, claims []Pod) (Selection, bool, error) {
	s := newSearch(p, trial, p.candidates(allowed, claims))
	victims, found, err := s.find()
	if err == nil && found {
		victims, err = s.replaceByFewer(victims)
	}
	if err != nil || !found {
		return Selection{CutShort: s.cutShort, OverBudget: s.overBudget}, false, err
	}
	return s.selection(victims), true, nil
}

// candidates returns the bundles that may go, those that go first in front.
func (p Problem) candidates(allowed []int, claims []Pod) []Bundle {
	var bundles []Bundle
	spent := newSpending(allowed, claims...)
	for i := range p.Gangs {
		bundles = append(bundles, split(p.Need, &p.Gangs[i], spent)...)
	}
	bundles = p.sorted(bundles, allowed, claims)
	if p.Budget == nil {
		return bundles
	}
	return p.sorted(affordable(p.Need, bundles, p.Budget()), allowed, claims) // a smaller bundle is worth less
}

// sorted sorts bundles by which goes first.
func (p Problem) sorted(bundles []Bundle, allowed []int, claims []Pod) []Bundle {
	if len(allowed) > 0 {
		bundles = joined(p.Need, bundles)
		p.Order.Sort(bundles, p.Threshold)
		bundles = newSpending(allowed, claims...).markViolating(p.Order, bundles)
	}
	p.Order.Sort(bundles, p.Threshold)
	return bundles
}

// violations counts the victims that violate a PodDisruptionBudget. It also returns the others that go alone, or with a
// gang of which no pod violates one.
func (s Selection) violations(allowed []int) (n int, granted []Pod) {
	spent := newSpending(allowed)
	for _, b := range s.Bundles {
		var fine []Pod
		for _, pod := range b.Pods {
			if !spent.violatedBy(pod) {
				fine = append(fine, pod)
			}
			spent.spend(pod)
		}
		n += len(b.Pods) - len(fine)
		if b.Kind == Safe || len(fine) == len(b.Pods) {
			granted = append(granted, fine...)
		}
	}
	return n, granted
}

// remnants returns the other evictable pods of the gang.
func (b Bundle) remnants() []Pod {
	var rest []Pod
	for _, pod := range b.Gang.Pods {
		if !pod.Protected && !slices.ContainsFunc(b.Pods, func(p Pod) bool { return p.UID == pod.UID }) {
			rest = append(rest, pod)
		}
	}
	return rest
}
