package placement

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// Minimum picks the members of a gang that are entitled to a place first: as many as it needs, and of each role.
func Minimum(p Problem, g Gang) []int { return (&solver{Problem: p}).chooseMinimum(g, false) }

// chooseMinimum picks the members that make up a gang's minimum: first those that its roles need, then the others in
// order. With small the smallest come first.
func (s *solver) chooseMinimum(g Gang, small bool) []int {
	members := g.Members
	if small {
		members = slices.Clone(members)
		slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(s.Members[b].Class, s.Members[a].Class) })
	}
	chosen := make([]int, 0, g.Min)
	taken := map[int]bool{}
	left := map[string]int{}
	for role, n := range g.MinByRole {
		left[role] = n
	}
	for _, m := range members {
		if role := s.Members[m].Role; left[role] > 0 {
			left[role]--
			taken[m] = true
			chosen = append(chosen, m)
		}
	}
	for _, m := range members {
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

// lackingRoles returns how many members of its roles a gang still needs, given those placed.
func (s *solver) lackingRoles(g Gang, placed map[int]int) (lacking map[string]int, sum int) {
	have := map[string]int{}
	for m := range placed {
		have[s.Members[m].Role]++
	}
	lacking = map[string]int{}
	for role, n := range g.MinByRole {
		lacking[role] = max(0, n-have[role])
		sum += lacking[role]
	}
	return lacking, sum
}

// tactic is a way to fill nodes.
type tactic struct {
	// tight: the fullest node first, instead of the best scored.
	tight bool
	// small: the smallest members make up the minimum, instead of the first.
	small bool
	// lead is the class that is placed before the larger ones; 0 is the largest.
	lead int
	// loose: only slices matter.
	loose bool
}

// tactics returns the tactics to try for gangs, in order: laid out, and then, if the layout is only preferred, without
// it. If all members are alike, neither their order nor that of the nodes matters.
func (s *solver) tactics(gangs part) []tactic {
	list := []tactic{{tight: s.pass.tight}}
	if classes := s.classesOf(gangs); len(classes) > 1 {
		list = []tactic{s.pass}
		for _, t := range passes[1:] {
			if t != s.pass {
				list = append(list, t)
			}
			for _, class := range classes[1:min(len(classes), maxLeads+1)] {
				list = append(list, tactic{tight: true, small: t.small, lead: class})
			}
		}
	}
	wishes := func(gang int) bool {
		return slices.ContainsFunc(s.Gangs[gang].Levels, func(level Level) bool { return !level.sliced() })
	}
	if !slices.ContainsFunc(gangs, wishes) {
		return list
	}
	for _, t := range list {
		t.loose = true
		list = append(list, t)
	}
	return list
}

// maxLeads bounds the classes that are tried in the lead.
const maxLeads = 3

func (s *solver) classesOf(gangs part) []int {
	var classes []int
	for _, gang := range gangs {
		for _, m := range s.Gangs[gang].Members {
			classes = append(classes, s.Members[m].Class)
		}
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

// fill places the minimums of gangs on nodes: gangs with a layout in the domains of their levels, and the others, the
// largest members first, on the nodes that the world scores best. If shapes differ and the whole does not fit, it tries
// other tactics, if there is hope. If it returns less than enough, members may be left in the world; these are the
// returned ones only if the fill is partial.
func (s *solver) fill(ctx context.Context, gangs part, nodes []int, hope bool) (map[int]int, error) {
	mark := s.world.Mark()
	var best map[int]int
	how, tactics := 0, s.tactics(gangs)
	if !hope {
		tactics = tactics[:1]
	}
	for i, t := range tactics {
		if i > 0 {
			if s.spent() {
				break
			}
			if err := s.world.Undo(ctx, mark); err != nil {
				return nil, err
			}
		}
		placed, err := s.attempt(ctx, gangs, nodes, t)
		if err != nil || s.enough(gangs, placed) {
			return placed, err
		}
		if i == 0 || len(placed) > len(best) {
			best, how = placed, i
		}
	}
	if !s.partial || how == len(tactics)-1 {
		return best, nil
	}
	if err := s.world.Undo(ctx, mark); err != nil {
		return nil, err
	}
	return s.attempt(ctx, gangs, nodes, tactics[how])
}

func (s *solver) enough(gangs part, placed map[int]int) bool {
	for _, gang := range gangs {
		g := s.Gangs[gang]
		mine := membersOf(g, placed)
		if _, lacking := s.lackingRoles(g, mine); len(mine) < g.Min || lacking > 0 {
			return false
		}
	}
	return true
}

// membersOf selects the placed members of a gang.
func membersOf(g Gang, placed map[int]int) map[int]int {
	mine := map[int]int{}
	for _, m := range g.Members {
		if node, ok := placed[m]; ok {
			mine[m] = node
		}
	}
	return mine
}

func (s *solver) attempt(ctx context.Context, gangs part, nodes []int, t tactic) (map[int]int, error) {
	f := &filling{solver: s, tactic: t, nodes: nodes, placed: map[int]int{}, open: map[int]*opened{}}
	var others []int
	for _, gang := range gangs {
		g := s.Gangs[gang]
		chosen := s.chooseMinimum(g, t.small)
		if t.loose {
			g.Levels = Sliced(g.Levels)
		}
		if len(g.Levels) == 0 {
			others = append(others, chosen...)
			continue
		}
		slices.SortStableFunc(chosen, func(a, b int) int { return cmp.Compare(s.Members[a].Rank, s.Members[b].Rank) })
		l := &layout{filling: f, tree: s.grow(nodes, g), gang: g}
		rest, err := l.rejoin(ctx, chosen)
		if err != nil {
			return nil, err
		}
		if _, err := l.lay(ctx, l.tree.root, 0, rest); err != nil {
			return nil, err
		}
	}
	if err := f.place(ctx, others); err != nil {
		return nil, err
	}
	for _, gang := range gangs {
		if g := s.Gangs[gang]; !g.sliced() {
			if err := f.substitute(ctx, g); err != nil {
				return nil, err
			}
		}
	}
	return f.placed, nil
}

// filling is one attempt.
type filling struct {
	*solver
	tactic
	nodes  []int
	placed map[int]int
	open   map[int]*opened
}

// opened is the state of the offers of a class.
type opened struct {
	offers Offers
	full   bool
}

// place places the members it can, class by class.
func (f *filling) place(ctx context.Context, members []int) error {
	slices.SortStableFunc(members, func(a, b int) int {
		x, y := f.Members[a].Class, f.Members[b].Class
		return cmp.Or(bools.Compare(x != f.lead, y != f.lead), cmp.Compare(x, y))
	})
	for _, alike := range chunks(members, func(a, b int) bool { return f.Members[a].Class == f.Members[b].Class }) {
		for i, m := range alike {
			if _, err := f.takePlace(ctx, m, len(alike)-i); err != nil {
				return err
			}
		}
	}
	return nil
}

// takePlace places one member; want is how many of its class follow.
func (f *filling) takePlace(ctx context.Context, member, want int) (bool, error) {
	f.effort--
	class := f.Members[member].Class
	o := f.open[class]
	if o == nil {
		o = &opened{offers: f.world.Open(class, f.nodes, want, f.tactic.tight)}
		f.open[class] = o
	}
	if o.full {
		return false, nil
	}
	node, ok, err := o.offers.Take(ctx, member)
	if err != nil {
		return false, err
	}
	if o.full = !ok; ok {
		f.placed[member] = node
	}
	return ok, nil
}

// substitute replaces members that did not fit with others of the same gang that do, as far as the roles allow.
func (f *filling) substitute(ctx context.Context, g Gang) error {
	mine := membersOf(g, f.placed)
	for _, m := range g.Members {
		if len(mine) >= g.Min {
			return nil
		}
		if _, ok := mine[m]; ok || f.exhausted(f.Members[m].Class) || !f.useful(g, mine, m) {
			continue
		}
		ok, err := f.takePlace(ctx, m, 1)
		if err != nil {
			return err
		}
		if ok {
			mine[m] = f.placed[m]
		}
	}
	return nil
}

// exhausted reports whether no node is left for a class.
func (f *filling) exhausted(class int) bool {
	o := f.open[class]
	return o != nil && o.full
}

// useful reports whether one more member leaves places for what the roles need.
func (f *filling) useful(g Gang, mine map[int]int, member int) bool {
	lacking, sum := f.lackingRoles(g, mine)
	return lacking[f.Members[member].Role] > 0 || g.Min-len(mine) > sum
}
