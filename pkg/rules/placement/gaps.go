package placement

import (
	"cmp"
	"context"
	"slices"
)

// gap is the free numbers of a slice that has members.
type gap struct {
	slice int
	// units are its free numbers, by the inner slices that have no members.
	units [][]int
	lacks int
}

// gapsOf lists the gaps in slices beside placed members: the finest first, and of these the fullest. It also returns
// all their numbers, with those taken.
func gapsOf(on []PlacedMember, levels []Level) (gaps []*gap, known map[int]bool) {
	taken := make([]int, len(on))
	known = map[int]bool{}
	for i, placed := range on {
		taken[i], known[placed.Rank] = placed.Rank, true
	}
	inside := 1
	for _, level := range slices.Backward(levels) {
		if level.Slice > 1 {
			gaps = append(gaps, gapsIn(taken, level.Slice, inside, known)...)
			inside = level.Slice
		}
	}
	return gaps, known
}

// gapsIn lists the gaps in slices of a size, the fullest first, beside members with these numbers. inside is the size
// of the slices inside. known has the numbers that are taken, or in gaps of slices inside; those of the gaps are added.
func gapsIn(taken []int, size, inside int, known map[int]bool) []*gap {
	var gaps []*gap
	of := map[int]*gap{} // by slice
	for _, rank := range taken {
		if of[rank/size] == nil {
			of[rank/size] = &gap{slice: rank / size}
			gaps = append(gaps, of[rank/size])
		}
	}
	for _, g := range gaps {
		var free []int
		for rank := g.slice * size; rank < (g.slice+1)*size; rank++ {
			if !known[rank] {
				known[rank], free = true, append(free, rank)
			}
		}
		g.lacks = len(free) // beside what the gaps inside take
		g.units = chunks(free, func(a, b int) bool { return a/inside == b/inside })
	}
	gaps = slices.DeleteFunc(gaps, func(g *gap) bool { return len(g.units) == 0 })
	slices.SortStableFunc(gaps, func(a, b *gap) int { return cmp.Compare(a.lacks, b.lacks) })
	return gaps
}

// fillGaps places members that carry no numbers in incomplete slices: in any with room, the finest first, and of these
// the fullest. It gives them numbers. It returns those that must begin new slices, since the gaps have fewer numbers
// than there are members.
func (l *layout) fillGaps(ctx context.Context, run []int) (rest []int, err error) {
	known := map[int]bool{}
	for _, standing := range l.gang.On {
		known[standing.Rank] = true
	}
	newcomers, stand := len(run), len(known)
	for depth, level := range slices.Backward(l.tree.levels) {
		if level.Slice > 1 {
			var in []int // those that are in a domain of the level
			for _, standing := range l.gang.On {
				if _, ok := l.world.Label(standing.Node, level.Key); ok {
					in = append(in, standing.Rank)
				}
			}
			if run, err = l.fillAt(ctx, depth, gapsIn(in, level.Slice, l.tree.unit(depth+1), known), run); err != nil {
				return nil, err
			}
		}
	}
	lacking := len(known) - stand
	run = run[:min(len(run), max(0, newcomers-lacking))]
	next := 0
	for _, m := range run {
		for known[next] {
			next++
		}
		l.ranks[m] = next
		next++
	}
	return run, nil
}

// fillAt fills gaps at the level at depth: with whole units, and with a rest of the run smaller than one. It returns
// the remaining members.
func (l *layout) fillAt(ctx context.Context, depth int, gaps []*gap, run []int) (rest []int, err error) {
	homes := l.homes(depth)
	gaps = slices.DeleteFunc(gaps, func(g *gap) bool { return homes[g.slice] == nil }) // they fit nowhere
	for _, g := range gaps {
		if run, err = l.fillGap(ctx, homes[g.slice], depth, g, run); err != nil {
			return nil, err
		}
	}
	for _, g := range gaps {
		if short := len(run) % l.tree.unit(depth+1); short > 0 && len(g.units) > 0 && len(g.units[0]) > short {
			ok, err := l.putAs(ctx, homes[g.slice], depth, run[:short], g.units[0][:short])
			if ok || err != nil {
				return run[short:], err
			}
		}
	}
	return run, nil
}

// fillGap places units in a gap, in the domain of its slice: as many as there are members for, or else those that it
// takes. If one member does not fit, one of another class may.
func (l *layout) fillGap(ctx context.Context, home *branch, depth int, g *gap,
	run []int) (rest []int, err error) {
	var ranks []int
	n := 0
	for ; n < len(g.units) && len(ranks)+len(g.units[n]) <= len(run); n++ {
		ranks = append(ranks, g.units[n]...)
	}
	if ok, err := l.putAs(ctx, home, depth, run[:len(ranks)], ranks); ok || err != nil {
		g.units = g.units[n:]
		return run[len(ranks):], err
	}
	run = slices.Clone(run)
	refused := map[int]bool{}
	if n == 1 {
		refused[l.Members[run[0]].Class] = true // it was tried above
	}
	for i := 0; i < len(run) && len(g.units) > 0; {
		unit := g.units[0]
		if refused[l.Members[run[i]].Class] {
			i++
			continue
		}
		if i+len(unit) > len(run) {
			break
		}
		ok, err := l.putAs(ctx, home, depth, run[i:i+len(unit)], unit)
		if err != nil {
			return nil, err
		}
		if ok {
			run, g.units = slices.Delete(run, i, i+len(unit)), g.units[1:]
		} else {
			refused[l.Members[run[i]].Class] = true
		}
	}
	return run, nil
}

// putAs places members in a domain, all or none, with these numbers.
func (l *layout) putAs(ctx context.Context, d *branch, depth int, run, ranks []int) (ok bool, err error) {
	for i, m := range run {
		l.ranks[m] = ranks[i]
	}
	if len(run) > 0 && !l.mayTakeAll(d, depth, l.load(run)) {
		return false, nil
	}
	return l.put(ctx, d, depth, run)
}
