package victim

import (
	"cmp"
	"fmt"
	"slices"
)

// Bounds of the search for few victims, so that it stays cheap with many candidates.
const (
	// maxReplaced is how many units it tries to replace by fewer.
	maxReplaced = 16
	// maxSets is how many sets it tries.
	maxSets = 150
)

// candidateLimits is how many candidates are combined to sets of one, two and three, those that free most of the need
// first.
var candidateLimits = [...]int{maxSets, 64, 32}

// replaceByFewer looks for fewer victims than those of a list, none of which counts more: one, two or three gangs or
// pods. The units of the list are removed and charged; so are those that it returns.
func (s *search) replaceByFewer(list []unit) ([]unit, error) {
	if countPods(list) < 2 || len(list) > maxReplaced {
		return list, nil
	}
	if err := s.restore(list); err != nil {
		return nil, err
	}
	s.refund(list)
	violating := s.selection(list).Violating
	few, err := s.findFew(func(set []unit) bool {
		return s.p.Order.improves(set, list) && s.selection(set).Violating <= violating
	})
	if err != nil {
		return nil, err
	}
	if few != nil {
		list = few
	}
	s.charge(list)
	return list, s.remove(list)
}

// findFew returns the smallest set of up to three gangs or pods that lets the preemptor fit, that the budget grants and
// that will accepts; of several of a size, the first in the order. It returns nil if it finds none. It leaves the trial
// and the budget unchanged.
func (s *search) findFew(will func([]unit) bool) ([]unit, error) {
	candidates := s.soloSets()
	tries := maxSets
	for i, width := range candidateLimits {
		var best []unit
		var failed error
		combine(candidates[:min(width, len(candidates))], i+1, func(set []unit) bool {
			if s.timeIsUp() {
				return false
			}
			if !will(set) || best != nil && slices.CompareFunc(set, best, compareUnits) >= 0 {
				return true
			}
			granted := s.charge(set)
			defer func() { s.refund(set[:granted]) }()
			if granted < len(set) {
				return true
			}
			if tries--; tries < 0 {
				return false
			}
			var fits bool
			fits, failed = s.fitsWithout(set)
			if fits {
				best = set
			}
			return failed == nil
		})
		if failed != nil || best != nil {
			return best, failed
		}
	}
	return nil, nil
}

// fitsWithout reports whether the preemptor fits if units go. It leaves the trial unchanged.
func (s *search) fitsWithout(list []unit) (bool, error) {
	if err := s.remove(list); err != nil {
		return false, err
	}
	fits := s.trial.MayFit()
	if fits {
		var err error
		if fits, err = s.trial.Fits(); err != nil {
			return false, fmt.Errorf("trying %d candidates: %w", len(list), err)
		}
	}
	return fits, s.restore(list)
}

// soloSets returns what may go alone: a Safe unit, or a Whole one with the surplus of its gang. Those that free most of
// the need come first.
func (s *search) soloSets() [][]unit {
	surplus := map[string][]unit{}
	var sets [][]unit
	gain := map[int]float64{} // by the last unit
	for _, u := range s.units {
		set := []unit{u}
		if id := u.bundle.Gang.ID; u.bundle.Kind == Safe {
			surplus[id] = append(surplus[id], u)
		} else {
			set = slices.Concat(surplus[id], set)
		}
		freed := Vector{}
		for _, member := range set {
			for _, pod := range member.pods {
				if pod.Local {
					freed.Add(pod.Request, 1)
				}
			}
		}
		gain[u.at] = Coverage(s.p.Need, freed)
		sets = append(sets, set)
	}
	last := func(set []unit) int { return set[len(set)-1].at }
	slices.SortStableFunc(sets, func(a, b []unit) int { return cmp.Compare(gain[last(b)], gain[last(a)]) })
	return sets
}

// combine calls try with the sorted unions of n sets, until it returns false. It skips sets of the same gang if one of
// them ends it.
func combine(sets [][]unit, n int, try func([]unit) bool) bool {
	var more func(set []unit, from, n int) bool
	more = func(set []unit, from, n int) bool {
		if n == 0 {
			sorted := slices.Clone(set)
			slices.SortFunc(sorted, compareUnits)
			return try(sorted)
		}
		for i := from; i < len(sets); i++ {
			if !slices.ContainsFunc(set, func(u unit) bool { return u.excludes(sets[i]) }) &&
				!more(slices.Concat(set, sets[i]), i+1, n-1) {
				return false
			}
		}
		return true
	}
	return more(nil, 0, n)
}

// excludes reports whether a unit and a set are of one gang, and one of them ends it.
func (u unit) excludes(set []unit) bool {
	last := set[len(set)-1]
	return u.bundle.Gang == last.bundle.Gang && (u.bundle.Kind == Whole || last.bundle.Kind == Whole)
}

// countPods returns the number of pods of units.
func countPods(list []unit) (n int) {
	for _, u := range list {
		n += len(u.pods)
	}
	return n
}

// improves reports whether few has fewer pods than many, in no more gangs, and, compared pod by pod from the heaviest,
// none that counts more.
func (o Order) improves(few, many []unit) bool {
	if countPods(few) >= countPods(many) || countBundles(few) > countBundles(many) {
		return false
	}
	for i, u := range few {
		if i > 0 && u.bundle == few[i-1].bundle {
			continue
		}
		if o.countHeavy(few, u) > o.countHeavy(many, u) {
			return false
		}
	}
	return true
}

func countBundles(list []unit) (n int) {
	for i, u := range list {
		if i == 0 || u.bundle != list[i-1].bundle {
			n++
		}
	}
	return n
}

// countHeavy returns how many pods of units count as much as those of a unit, or more.
func (o Order) countHeavy(list []unit, least unit) (n int) {
	for _, u := range list {
		if o.compareWeight(*u.bundle, *least.bundle) >= 0 {
			n += len(u.pods)
		}
	}
	return n
}

// compareWeight compares what no number of victims outweighs: the criteria before the return on investment, and the
// priority.
func (o Order) compareWeight(a, b Bundle) int {
	return cmp.Or(o.before(a, b), cmp.Compare(a.Gang.Priority, b.Gang.Priority))
}
