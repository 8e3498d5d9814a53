package placement

import (
	"cmp"
	"slices"
)

// choose picks the members that make up a gang's minimum: first what its roles
// need, then whoever comes first in order.
func (s *solver) choose(g Gang) []int {
	chosen := make([]int, 0, g.Min)
	taken := map[int]bool{}
	left := map[string]int{}
	for role, n := range g.MinByRole {
		left[role] = n
	}
	for _, m := range g.Members {
		if role := s.Members[m].Role; left[role] > 0 {
			left[role]--
			taken[m] = true
			chosen = append(chosen, m)
		}
	}
	for _, m := range g.Members {
		if len(chosen) >= g.Min {
			break
		}
		if !taken[m] {
			chosen = append(chosen, m)
		}
	}
	slices.Sort(chosen)
	return chosen
}

func (s *solver) rolesMet(g Gang, placed map[int]int) bool {
	have := map[string]int{}
	for m := range placed {
		have[s.Members[m].Role]++
	}
	for role, n := range g.MinByRole {
		if have[role] < n {
			return false
		}
	}
	return true
}

// fill places the minimums of gangs, going through the steps: nodes of a later
// step are used only once those of an earlier one are full. Largest members go
// first. It tries the world's scores; where shapes differ and the whole does not
// fit, it tries again packing tightly, and keeps the better.
func (s *solver) fill(gangs []int, steps [][]int) (map[int]int, error) {
	mark := s.world.Mark()
	placed, err := s.attempt(gangs, steps, false)
	if err != nil || s.enough(gangs, placed) || !s.mixed(gangs) {
		return placed, err
	}
	if err := s.world.Undo(mark); err != nil {
		return nil, err
	}
	tight, err := s.attempt(gangs, steps, true)
	if err != nil || len(tight) >= len(placed) {
		return tight, err
	}
	if err := s.world.Undo(mark); err != nil {
		return nil, err
	}
	return s.attempt(gangs, steps, false)
}

func (s *solver) enough(gangs []int, placed map[int]int) bool {
	for _, gang := range gangs {
		g := s.Gangs[gang]
		if mine := of(g, placed); len(mine) < g.Min || !s.rolesMet(g, mine) {
			return false
		}
	}
	return true
}

// mixed tells whether members of several shapes compete, so that the order and
// the choice of nodes matter.
func (s *solver) mixed(gangs []int) bool {
	class := -1
	for _, gang := range gangs {
		for _, m := range s.Gangs[gang].Members {
			if class >= 0 && s.Members[m].Class != class {
				return true
			}
			class = s.Members[m].Class
		}
	}
	return false
}

func (s *solver) attempt(gangs []int, steps [][]int, tight bool) (map[int]int, error) {
	f := &filling{solver: s, steps: steps, tight: tight, placed: map[int]int{}, open: map[int]*opened{}}
	var chosen []int
	for _, gang := range gangs {
		chosen = append(chosen, s.choose(s.Gangs[gang])...)
	}
	if err := f.place(chosen); err != nil {
		return nil, err
	}
	for _, gang := range gangs {
		if err := f.substitute(s.Gangs[gang]); err != nil {
			return nil, err
		}
	}
	return f.placed, nil
}

// filling is one attempt.
type filling struct {
	*solver
	steps  [][]int
	tight  bool
	placed map[int]int
	open   map[int]*opened
}

// opened is how far a class has come through the steps.
type opened struct {
	offers Offers
	step   int
}

// place places the members it can, class by class.
func (f *filling) place(members []int) error {
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(f.Members[a].Class, f.Members[b].Class) })
	for i, m := range members {
		class := f.Members[m].Class
		rest := i
		for rest < len(members) && f.Members[members[rest]].Class == class {
			rest++
		}
		if _, err := f.take(m, rest-i); err != nil {
			return err
		}
	}
	return nil
}

// take places one member; want is how many of its class are still to come.
func (f *filling) take(member, want int) (bool, error) {
	class := f.Members[member].Class
	o := f.open[class]
	if o == nil {
		o = &opened{}
		f.open[class] = o
	}
	for ; o.step < len(f.steps); o.step, o.offers = o.step+1, nil {
		if o.offers == nil {
			offers, err := f.world.Open(class, f.steps[o.step], want, f.tight)
			if err != nil {
				return false, err
			}
			o.offers = offers
		}
		node, ok, err := o.offers.Take(member)
		if err != nil {
			return false, err
		}
		if ok {
			f.placed[member] = node
			return true, nil
		}
	}
	return false, nil
}

// substitute fills the places of members that did not fit with others of the
// same gang that do, as far as the roles allow.
func (f *filling) substitute(g Gang) error {
	mine := of(g, f.placed)
	for _, m := range g.Members {
		if len(mine) >= g.Min {
			return nil
		}
		if _, ok := mine[m]; ok || f.exhausted(f.Members[m].Class) || !f.useful(g, mine, m) {
			continue
		}
		ok, err := f.take(m, 1)
		if err != nil {
			return err
		}
		if ok {
			mine[m] = f.placed[m]
		}
	}
	return nil
}

// exhausted tells that no node is left for a class.
func (f *filling) exhausted(class int) bool {
	o := f.open[class]
	return o != nil && o.step >= len(f.steps)
}

// useful tells whether a further member leaves room for what the roles need.
func (f *filling) useful(g Gang, mine map[int]int, member int) bool {
	lacking := 0
	have := map[string]int{}
	for m := range mine {
		have[f.Members[m].Role]++
	}
	for role, n := range g.MinByRole {
		if n > have[role] {
			lacking += n - have[role]
		}
	}
	role := f.Members[member].Role
	return g.MinByRole[role] > have[role] || g.Min-len(mine) > lacking
}
