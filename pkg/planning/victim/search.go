package victim

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// unit is a set of pods that go or stay together: one pod of a Safe bundle, or all of a Whole one.
type unit struct {
	bundle *Bundle
	pods   []Pod
	// at is its index among the units of the search.
	at int
}

// compareUnits orders units as their search does.
func compareUnits(a, b unit) int { return cmp.Compare(a.at, b.at) }

// search tries units. Every list of units is in the order in which they go, Safe ones before Whole ones.
type search struct {
	p     Problem
	trial Trial
	units []unit
	// budget has granted the units decided to go; nil for no limit.
	budget Budget
	// stays marks units decided to stay, by index.
	stays []bool
	// choices is how many more choices may be charged to the budget.
	choices    int
	cutShort   bool
	overBudget bool
}

// maxChoices bounds how many choices are charged to the budget: if queues can give next to nothing, most of them fail.
const maxChoices = 16

// newSearch returns a search among sorted bundles, with nothing removed.
func newSearch(p Problem, trial Trial, bundles []Bundle) *search {
	s := &search{p: p, trial: trial, choices: maxChoices}
	if p.Budget != nil {
		s.budget = p.Budget()
	}
	add := func(b *Bundle, pods []Pod) { s.units = append(s.units, unit{b, pods, len(s.units)}) }
	for i := range bundles {
		b := &bundles[i]
		if b.Kind == Whole {
			add(b, b.Pods)
			continue
		}
		for j := range b.Pods {
			add(b, b.Pods[j:j+1])
		}
	}
	s.stays = make([]bool, len(s.units))
	return s
}

// timeIsUp reports whether the search must end early.
func (s *search) timeIsUp() bool {
	s.cutShort = s.cutShort || s.p.Expired != nil && s.p.Expired()
	return s.cutShort
}

// find returns units that let the preemptor fit within the budget. Each of them is needed unless the search was cut
// short. They are removed in the trial. It returns false, with nothing removed, if it finds none.
func (s *search) find() ([]unit, bool, error) {
	list, found, err := s.extend(nil)
	if err == nil && !found && s.choices < 0 {
		// There are more choices than can be charged one after the other. A small one may fit the budget.
		if list, err = s.findFew(func([]unit) bool { return true }); err == nil && list != nil {
			s.charge(list)
			found, err = true, s.remove(list)
		}
	}
	if err != nil || !found {
		return nil, false, err
	}
	s.overBudget = false
	if !s.isFirstChoice() {
		// Units decided first may have become needless.
		slices.SortFunc(list, compareUnits)
		s.refund(list)
		if list, err = s.trim(list); err != nil {
			return nil, false, err
		}
		s.charge(list)
	}
	return list, true, nil
}

// isFirstChoice reports whether no choice has been refused by the budget.
func (s *search) isFirstChoice() bool { return s.choices == maxChoices-1 }

// extend adds units to the decided ones, which are removed in the trial and charged, until the preemptor fits. It first
// chooses what is needed without the budget. If the budget refuses a chosen unit, one of them must stay: the refused
// one first, then those before it, the last first. It returns false, with nothing changed, if there is no choice.
func (s *search) extend(decided []unit) ([]unit, bool, error) {
	if s.choices--; s.choices < 0 || len(decided) > 0 && s.timeIsUp() {
		return nil, false, nil
	}
	candidates := s.undecided(decided)
	list, fits, err := s.prefix(candidates)
	if err == nil && !fits && s.p.Attracts != nil {
		if others := s.unattractive(candidates); len(others) < len(candidates) {
			list, fits, err = s.prefix(others)
		}
	}
	if err != nil || !fits {
		return nil, false, err
	}
	if list, err = s.trim(list); err != nil {
		return nil, false, err
	}
	granted := s.charge(list)
	if granted == len(list) {
		return slices.Concat(decided, list), true, nil
	}
	s.overBudget = true
	if err := s.restore(list[granted:]); err != nil {
		return nil, false, err
	}
	n := granted
	for ; s.choices > 0 && !s.timeIsUp(); n-- {
		s.stays[list[n].at] = true
		result, found, err := s.extend(slices.Concat(decided, list[:n]))
		s.stays[list[n].at] = false
		if err != nil || found || n == 0 {
			return result, found, err
		}
		s.refund(list[n-1 : n])
		if err := s.restore(list[n-1 : n]); err != nil {
			return nil, false, err
		}
	}
	s.choices-- // this choice is not tried
	s.refund(list[:n])
	return nil, false, s.restore(list[:n])
}

// unattractive returns the units without a pod that attracts the preemptor.
func (s *search) unattractive(list []unit) []unit {
	return slices.DeleteFunc(slices.Clone(list), func(u unit) bool { return slices.ContainsFunc(u.pods, s.p.Attracts) })
}

// undecided returns the units that are not decided and that the budget would grant, each alone.
func (s *search) undecided(decided []unit) []unit {
	if s.budget == nil {
		return s.units
	}
	gone, kept := map[types.UID]bool{}, map[string]bool{}
	for _, u := range decided {
		for _, pod := range u.pods {
			gone[pod.UID] = true
		}
	}
	var list []unit
	for _, u := range s.units {
		gang, rest := u.bundle.Gang, u.pods
		if gone[rest[0].UID] {
			continue
		}
		may := !s.stays[u.at]
		if u.bundle.Kind == Whole {
			may = may && !kept[gang.ID]
			if len(gang.Pods) > len(rest) {
				rest = slices.DeleteFunc(slices.Clone(gang.Pods), func(pod Pod) bool { return gone[pod.UID] })
			}
		}
		// If nothing is decided the budget would grant each: the others are no candidates.
		if may && (len(decided) == 0 || wouldGrant(s.budget, gang, rest)) {
			list = append(list, u)
		} else {
			kept[gang.ID] = true
		}
	}
	return list
}

// charge charges units to the budget, one after the other. It returns how many are granted before one is refused.
func (s *search) charge(list []unit) int {
	if s.budget == nil {
		return len(list)
	}
	for i, u := range list {
		if !s.budget.Take(u.bundle.Gang, u.pods) {
			return i
		}
	}
	return len(list)
}

// refund returns units to the budget.
func (s *search) refund(list []unit) {
	if s.budget == nil {
		return
	}
	for _, u := range list {
		s.budget.Return(u.bundle.Gang, u.pods)
	}
}

// prefix removes the shortest prefix of units that lets the preemptor fit: first the shortest for which the sums do not
// rule that out, which is cheap; from there it tries, as long as there is time.
func (s *search) prefix(list []unit) ([]unit, bool, error) {
	mayFit := func() (bool, error) { return s.trial.MayFit(), nil }
	n, found, err := s.shortest(list, 0, mayFit, func() bool { return false })
	if err == nil && found {
		n, found, err = s.shortest(list, n, s.trial.Fits, s.timeIsUp)
	}
	if err != nil || !found {
		return nil, false, err
	}
	return list[:n], true, nil
}

// shortest removes the shortest prefix of units for which enough reports true, of those with gone units or more, which
// are removed already. It assumes that enough is true of any longer prefix, too: it tries growing steps, then halves,
// until stop reports true. It returns false, with nothing removed, if it finds none.
func (s *search) shortest(list []unit, gone int, enough func() (bool, error), stop func() bool) (int, bool, error) {
	become := func(n int) error {
		err := s.remove(list[gone:max(n, gone)])
		if n < gone {
			err = s.restore(list[n:gone])
		}
		gone = n
		return err
	}
	short := gone - 1
	for step := 1; ; step *= 2 {
		ok, err := enough()
		if err != nil {
			return 0, false, fmt.Errorf("trying %d of %d candidates: %w", gone, len(list), err)
		}
		if ok {
			break
		}
		if gone == len(list) || stop() {
			return 0, false, become(0)
		}
		short = gone
		if err := become(min(gone+step, len(list))); err != nil {
			return 0, false, err
		}
	}
	n := gone
	for n-short > 1 && !stop() {
		if err := become(short + (n-short)/2); err != nil {
			return 0, false, err
		}
		ok, err := enough()
		if err != nil {
			return 0, false, fmt.Errorf("trying %d of %d candidates: %w", gone, len(list), err)
		}
		if ok {
			n = gone
		} else {
			short = gone
		}
	}
	return n, true, become(n)
}

// trim restores the units that the preemptor does not need, and returns those that must go.
func (s *search) trim(list []unit) ([]unit, error) {
	first := slices.IndexFunc(list, func(u unit) bool { return u.bundle.Kind == Whole })
	if first < 0 {
		first = len(list)
	}
	whole, err := s.restoreUnneeded(list[first:])
	if err != nil {
		return nil, err
	}
	ends := map[string]bool{}
	for _, u := range whole {
		ends[u.bundle.Gang.ID] = true
	}
	var safe, others []unit
	for _, u := range list[:first] {
		if ends[u.bundle.Gang.ID] {
			safe = append(safe, u) // the surplus of a gang that ends goes with it
		} else {
			others = append(others, u)
		}
	}
	if others, err = s.restoreUnneeded(others); err != nil {
		return nil, err
	}
	safe = append(safe, others...)
	slices.SortFunc(safe, compareUnits)
	return append(safe, whole...), nil
}

// restoreUnneeded restores units that the preemptor does not need, the last first, and returns the others. If it fits
// without all that the sums do not miss, the others are those; else trials tell, as long as there is time. The first
// choice tries the former in any case.
func (s *search) restoreUnneeded(list []unit) ([]unit, error) {
	needed, restored, err := s.restoreBySums(list)
	if err != nil || len(restored) == 0 {
		return needed, err
	}
	if s.isFirstChoice() || !s.timeIsUp() {
		fits, err := s.trial.Fits()
		if err != nil {
			return nil, fmt.Errorf("trying without %d candidates: %w", len(restored), err)
		}
		if fits {
			return needed, nil
		}
	}
	if err := s.remove(restored); err != nil {
		return nil, err
	}
	return s.restoreByTrials(list)
}

// restoreBySums restores units, the last first, without which the sums do not rule out that the preemptor fits. It
// returns the others, and those restored.
func (s *search) restoreBySums(list []unit) (needed, restored []unit, err error) {
	for _, u := range slices.Backward(list) {
		if err := s.restore([]unit{u}); err != nil {
			return nil, nil, err
		}
		if s.trial.MayFit() {
			restored = append(restored, u)
			continue
		}
		if err := s.remove([]unit{u}); err != nil {
			return nil, nil, err
		}
		needed = append(needed, u)
	}
	slices.Reverse(needed)
	return needed, restored, nil
}

// restoreByTrials restores units, the last first, in groups that double in size as long as the preemptor fits without
// them. If it does not fit without a group, halving finds the last needed unit. It returns the needed units.
func (s *search) restoreByTrials(list []unit) ([]unit, error) {
	var kept []unit // the last first
	size, doubt := 1, 0
	for len(list) > 0 {
		if doubt == 1 || s.timeIsUp() {
			kept = append(kept, list[len(list)-1])
			list, size, doubt = list[:len(list)-1], 1, 0
			continue
		}
		size = min(size, len(list))
		group := list[len(list)-size:]
		if err := s.restore(group); err != nil {
			return nil, err
		}
		fits, err := s.trial.Fits()
		if err != nil {
			return nil, fmt.Errorf("trying without %d candidates: %w", len(group), err)
		}
		if fits {
			list = list[:len(list)-size]
			if doubt -= size; doubt > 0 {
				size = max(doubt/2, 1)
			} else {
				size, doubt = 2*size, 0
			}
			continue
		}
		if err := s.remove(group); err != nil {
			return nil, err
		}
		// One of the last doubt units is needed.
		doubt, size = size, max(size/2, 1)
	}
	slices.Reverse(kept)
	return kept, nil
}

func (s *search) remove(list []unit) error {
	for _, u := range list {
		if err := s.trial.Remove(u.pods); err != nil {
			return fmt.Errorf("removing %d pods of %s: %w", len(u.pods), u.bundle.Gang.ID, err)
		}
	}
	return nil
}

func (s *search) restore(list []unit) error {
	for _, u := range slices.Backward(list) {
		if err := s.trial.Restore(u.pods); err != nil {
			return fmt.Errorf("restoring %d pods of %s: %w", len(u.pods), u.bundle.Gang.ID, err)
		}
	}
	return nil
}

// selection returns the outcome for sorted units that go.
func (s *search) selection(victims []unit) Selection {
	bundles := make([]Bundle, len(victims))
	for i, u := range victims {
		bundles[i] = *u.bundle
		bundles[i].Pods = u.pods
	}
	out := Selection{Bundles: joined(s.p.Need, bundles), CutShort: s.cutShort}
	for _, b := range out.Bundles {
		if b.Broken {
			out.Remnants = append(out.Remnants, b.remnants()...)
		}
	}
	out.Violating, _ = out.violations(s.p.Allowed)
	return out
}
