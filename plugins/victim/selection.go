package victim

import (
	"errors"
	"fmt"
	"slices"
)

// Trial is the caller's what-if. The same pod is never removed twice without being
// restored.
type Trial interface {
	// Remove supposes that pods are gone.
	Remove(pods []Pod) error
	// Restore supposes that they are back, each exactly as it was.
	Restore(pods []Pod) error
	// Fits reports whether the whole minimum of the preemptor can be placed now.
	Fits() (bool, error)
}

// Problem is what there is to choose from.
type Problem struct {
	// Need is all that the minimum of the preemptor asks for.
	Need Vector
	// Gangs are the gangs of which pods stand in the domain, each with all its pods.
	Gangs []Gang
	// Order ranks them.
	Order Order
	// Threshold is the difference in return on investment that does not count, 0 or
	// more. 0.05 is a good one.
	Threshold float64
	// Budget makes the limit of what may be taken, for one choice; nil for no limit.
	Budget func() Budget
	// Allowed is how many more pods each PodDisruptionBudget lets go. A pod violates
	// one only where the other victims use it up. Such pods go last among equals; a
	// PodDisruptionBudget never forbids.
	Allowed []int
}

// Selection is which pods go.
type Selection struct {
	// Bundles are the decisions, in their order, with the pods that go by each.
	Bundles []Bundle
	// Remnants are what is left of gangs that were broken already and lose pods: they
	// only waste what they keep. The preemptor does not need their place.
	Remnants []Pod
	// Violating is how many of the victims violate a PodDisruptionBudget: those before
	// them have used it up.
	Violating int
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
func (s Selection) Gain() float64 { return s.sum(func(b Bundle) float64 { return b.Gain }) }

// Cost returns the sum of the bundles' costs.
func (s Selection) Cost() float64 { return s.sum(func(b Bundle) float64 { return b.Cost }) }

func (s Selection) sum(of func(Bundle) float64) float64 {
	total := 0.0
	for _, b := range s.Bundles {
		total += of(b)
	}
	return total
}

// Select chooses victims. It returns false where the preemptor would not fit even if
// all candidates were gone; then nothing is chosen. Where it fits as things are, the
// selection is empty. What it chose is removed in the trial when it returns true.
//
// The trial is asked about twice the logarithm of the number of bundles until it fits,
// and once for every victim after that; and as often again where a victim violates a
// PodDisruptionBudget. An error of the trial ends the selection.
func (p Problem) Select(trial Trial) (Selection, bool, error) {
	first, found, err := p.choose(trial, nil, nil)
	if err != nil || !found {
		return Selection{}, false, err
	}
	violating, granted := first.violations(p.Allowed)
	if first.Violating = violating; violating == 0 {
		return first, true, nil
	}
	// Other victims may do that violate less. Those of the first choice that violate
	// nothing have a claim on their budgets: they are known to be of use.
	if err := trial.Restore(first.Pods()); err != nil {
		return Selection{}, false, fmt.Errorf("restoring the first choice: %w", err)
	}
	second, found, err := p.choose(trial, p.Allowed, granted)
	if err != nil {
		return Selection{}, false, err
	}
	second.Violating, _ = second.violations(p.Allowed)
	if found && second.Harm().Compare(first.Harm()) < 0 {
		return second, true, nil
	}
	if err := errors.Join(trial.Restore(second.Pods()), trial.Remove(first.Pods())); err != nil {
		return Selection{}, false, fmt.Errorf("going back to the first choice: %w", err)
	}
	return first, true, nil
}

// choose chooses victims where PodDisruptionBudgets allow so much, and the pods in claims
// have a claim on them.
func (p Problem) choose(trial Trial, allowed []int, claims []Pod) (Selection, bool, error) {
	s := search{trial: trial, bundles: p.candidates(allowed, claims)}
	found, err := s.prefix()
	if err == nil && !found && allowed != nil {
		err = s.take(0) // there is another choice to go back to
	}
	if err != nil || !found {
		return Selection{}, false, err
	}
	if err := s.trim(); err != nil {
		return Selection{}, false, err
	}
	return s.selection(p.Need), true, nil
}

// candidates returns the bundles of a problem that may be taken, by which goes first.
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
	return p.sorted(validate(p.Need, bundles, p.Budget()), allowed, claims) // what shrank is worth less
}

// sorted sorts bundles by which goes first.
func (p Problem) sorted(bundles []Bundle, allowed []int, claims []Pod) []Bundle {
	if len(allowed) > 0 {
		bundles = joined(p.Need, bundles)
		p.Order.Sort(bundles, p.Threshold)
		bundles = newSpending(allowed, claims...).guard(p.Order, bundles)
	}
	p.Order.Sort(bundles, p.Threshold)
	return bundles
}

// violations counts the victims that violate a PodDisruptionBudget. It returns also the
// others that go by themselves, or with a gang of which no pod violates one.
func (s Selection) violations(allowed []int) (n int, granted []Pod) {
	spent := newSpending(allowed)
	for _, b := range s.Bundles {
		var fine []Pod
		for _, pod := range b.Pods {
			if !spent.violatedBy(pod) {
				fine = append(fine, pod)
			}
			spent.take(pod)
		}
		n += len(b.Pods) - len(fine)
		if b.Kind == Safe || len(fine) == len(b.Pods) {
			granted = append(granted, fine...)
		}
	}
	return n, granted
}

// search is a selection in the making.
type search struct {
	trial   Trial
	bundles []Bundle
	// taken of them are removed.
	taken int
}

// prefix finds the shortest row of bundles from the first that lets the preemptor fit,
// supposing that any longer one does, too: first in growing steps, then by halves.
func (s *search) prefix() (bool, error) {
	unfit := -1
	for step := 1; ; step *= 2 {
		fits, err := s.trial.Fits()
		if err != nil {
			return false, fmt.Errorf("trying %d of %d bundles: %w", s.taken, len(s.bundles), err)
		}
		if fits {
			break
		}
		if s.taken == len(s.bundles) {
			return false, nil
		}
		unfit = s.taken
		if err := s.take(min(s.taken+step, len(s.bundles))); err != nil {
			return false, err
		}
	}
	for fit := s.taken; fit-unfit > 1; {
		middle := unfit + (fit-unfit)/2
		if err := s.take(middle); err != nil {
			return false, err
		}
		fits, err := s.trial.Fits()
		if err != nil {
			return false, fmt.Errorf("trying %d of %d bundles: %w", s.taken, len(s.bundles), err)
		}
		if fits {
			fit = middle
		} else {
			unfit = middle
		}
		if fit-unfit == 1 {
			return true, s.take(fit)
		}
	}
	return true, nil
}

// take supposes that the first n bundles are gone and the others are not.
func (s *search) take(n int) error {
	for ; s.taken < n; s.taken++ {
		if err := s.trial.Remove(s.bundles[s.taken].Pods); err != nil {
			return fmt.Errorf("removing pods of %s: %w", s.bundles[s.taken].Gang.ID, err)
		}
	}
	for ; s.taken > n; s.taken-- {
		if err := s.trial.Restore(s.bundles[s.taken-1].Pods); err != nil {
			return fmt.Errorf("restoring pods of %s: %w", s.bundles[s.taken-1].Gang.ID, err)
		}
	}
	return nil
}

// trim hands back, the most valuable first, all that the preemptor does not need.
func (s *search) trim() error {
	s.bundles = slices.Clone(s.bundles[:s.taken])
	whole := map[string]bool{}
	for i := len(s.bundles) - 1; i >= 0; i-- {
		b := &s.bundles[i]
		if whole[b.Gang.ID] {
			continue // its gang ends
		}
		kept, err := s.spare(b.Pods, b.Kind == Safe)
		if err != nil {
			return err
		}
		b.Pods = kept
		whole[b.Gang.ID] = b.Kind == Whole && len(kept) > 0
	}
	return nil
}

// spare hands pods back, together, if the preemptor fits all the same, and else, where
// they may be parted, half by half, the last first. It returns the pods that have to go.
func (s *search) spare(pods []Pod, part bool) ([]Pod, error) {
	if err := s.trial.Restore(pods); err != nil {
		return nil, fmt.Errorf("restoring %d pods: %w", len(pods), err)
	}
	fits, err := s.trial.Fits()
	if err != nil {
		return nil, fmt.Errorf("trying without %d pods: %w", len(pods), err)
	}
	if fits {
		return nil, nil
	}
	if err := s.trial.Remove(pods); err != nil {
		return nil, fmt.Errorf("removing %d pods: %w", len(pods), err)
	}
	if !part || len(pods) == 1 {
		return pods, nil
	}
	last, err := s.spare(pods[len(pods)/2:], part)
	if err != nil {
		return nil, err
	}
	first, err := s.spare(pods[:len(pods)/2], part)
	return slices.Concat(first, last), err
}

// selection returns the outcome.
func (s *search) selection(need Vector) Selection {
	var out Selection
	for _, b := range joined(need, slices.DeleteFunc(s.bundles, func(b Bundle) bool { return len(b.Pods) == 0 })) {
		b = makeBundle(need, b)
		out.Bundles = append(out.Bundles, b)
		if b.Broken {
			out.Remnants = append(out.Remnants, b.remnants()...)
		}
	}
	return out
}

// remnants returns the other pods of the gang that may go.
func (b Bundle) remnants() []Pod {
	var rest []Pod
	for _, pod := range b.Gang.Pods {
		if !pod.Protected && !slices.ContainsFunc(b.Pods, func(p Pod) bool { return p.UID == pod.UID }) {
			rest = append(rest, pod)
		}
	}
	return rest
}
