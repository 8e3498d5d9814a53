package placement

import (
	"cmp"
	"context"
	"slices"
)

// gap is the free numbers of a slice that has members.
type gap struct {
	// home is the domain with its members.
	home *branch
	// units are its free numbers, by the inner slices that have no members.
	units [][]int
	lacks int
}

// fillGaps places members that carry no numbers in incomplete slices: in any with room, the finest first, and of these
// the fullest. It gives them numbers. It returns those that must begin new slices, since the gaps have fewer numbers
// than there are members.
func (l *layout) fillGaps(ctx context.Context, run []int) (rest []int, err error) {
	taken := map[int]bool{} // and the numbers of gaps visited
	for _, standing := range l.gang.On {
		taken[standing.Rank] = true
	}
	newcomers, stand := len(run), len(taken)
	for depth, level := range slices.Backward(l.tree.levels) {
		if level.Slice > 1 {
			if run, err = l.fillAt(ctx, depth, l.gaps(depth, taken), run); err != nil {
				return nil, err
			}
		}
	}
	lacking := len(taken) - stand
	run = run[:min(len(run), max(0, newcomers-lacking))]
	next := 0
	for _, m := range run {
		for taken[next] {
			next++
		}
		l.ranks[m] = next
		next++
	}
	return run, nil
}

// gaps lists the gaps in slices of the level at depth, the fullest first, and marks their numbers taken.
func (l *layout) gaps(depth int, taken map[int]bool) []*gap {
	level, homes, inside, seen := l.tree.levels[depth], map[int]*branch{}, l.tree.unit(depth+1), map[int]bool{}
	l.homes(l.tree.root, 0, depth, homes)
	var gaps []*gap
	for _, standing := range l.gang.On {
		slice := standing.Rank / level.Slice
		if _, ok := l.world.Label(standing.Node, level.Key); !ok || seen[slice] {
			continue
		}
		seen[slice] = true
		g := &gap{home: homes[slice]}
		for rank := slice * level.Slice; rank < (slice+1)*level.Slice; rank++ {
			if taken[rank] {
				continue
			}
			taken[rank] = true
			if last := len(g.units) - 1; last >= 0 && g.units[last][0]/inside == rank/inside {
				g.units[last] = append(g.units[last], rank)
			} else {
				g.units = append(g.units, []int{rank})
			}
			g.lacks++
		}
		if g.home != nil { // otherwise they fit nowhere
			gaps = append(gaps, g)
		}
	}
	slices.SortStableFunc(gaps, func(a, b *gap) int { return cmp.Compare(a.lacks, b.lacks) })
	return gaps
}

// fillAt fills gaps at the level at depth: with whole units, and with a rest of the run smaller than one. It returns
// the remaining members.
func (l *layout) fillAt(ctx context.Context, depth int, gaps []*gap, run []int) (rest []int, err error) {
	for _, g := range gaps {
		if run, err = l.fillGap(ctx, depth, g, run); err != nil {
			return nil, err
		}
	}
	for _, g := range gaps {
		if short := len(run) % l.tree.unit(depth+1); short > 0 && len(g.units) > 0 && len(g.units[0]) > short {
			ok, err := l.putAs(ctx, g.home, depth, run[:short], g.units[0][:short])
			if ok || err != nil {
				return run[short:], err
			}
		}
	}
	return run, nil
}

// fillGap places units in a gap: as many as there are members for, or else those that it takes. If one member does not
// fit, one of another class may.
func (l *layout) fillGap(ctx context.Context, depth int, g *gap, run []int) (rest []int, err error) {
	var ranks []int
	n := 0
	for ; n < len(g.units) && len(ranks)+len(g.units[n]) <= len(run); n++ {
		ranks = append(ranks, g.units[n]...)
	}
	if ok, err := l.putAs(ctx, g.home, depth, run[:len(ranks)], ranks); ok || err != nil {
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
		ok, err := l.putAs(ctx, g.home, depth, run[i:i+len(unit)], unit)
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
