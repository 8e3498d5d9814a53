package placement

import (
	"context"
	"slices"
)

// rejoin places members of slices that have placed members: in the domain of these, or nowhere. The finest slices come
// first, since they have the least choice. It returns the rest of the run.
func (l *layout) rejoin(ctx context.Context, run []int) (rest []int, err error) {
	if len(l.gang.On) == 0 {
		return run, nil
	}
	if l.gang.Unnumbered {
		return l.fillGaps(ctx, run)
	}
	for depth, level := range slices.Backward(l.tree.levels) {
		if level.Slice > 1 {
			if run, err = l.rejoinAt(ctx, depth, run); err != nil {
				return nil, err
			}
		}
	}
	return run, nil
}

// rejoinAt is rejoin for the slices of the level at depth.
func (l *layout) rejoinAt(ctx context.Context, depth int, run []int) (rest []int, err error) {
	level, stands, homes := l.tree.levels[depth], map[int]bool{}, map[int]*branch{}
	for _, standing := range l.gang.On {
		if _, ok := l.world.Label(standing.Node, level.Key); ok {
			stands[standing.Rank/level.Slice] = true
		}
	}
	l.homes(l.tree.root, 0, depth, homes)
	var order []*branch
	units := map[*branch][][]int{}
	for _, unit := range l.units(run, level.Slice) {
		slice := l.rank(unit[0]) / level.Slice
		switch home := homes[slice]; {
		case !stands[slice]:
			rest = append(rest, unit...)
		case home != nil:
			if units[home] == nil {
				order = append(order, home)
			}
			units[home] = append(units[home], unit)
		}
	}
	for _, home := range order {
		if err := l.rejoinIn(ctx, home, depth, units[home]); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// rejoinIn places units in the domain of their slices: all, or else those that it takes, one after the other.
func (l *layout) rejoinIn(ctx context.Context, home *branch, depth int, units [][]int) error {
	if ok, err := l.put(ctx, home, depth, slices.Concat(units...)); ok || err != nil {
		return err
	}
	for _, unit := range units {
		if _, err := l.put(ctx, home, depth, unit); err != nil {
			return err
		}
	}
	return nil
}

// homes collects the domains of the level at depth in which its slices have members; next is the first level inside the
// branch.
func (l *layout) homes(b *branch, next, depth int, homes map[int]*branch) {
	for _, d := range b.inner {
		switch {
		case d.outside && l.tree.levels[next].sliced():
		case next < depth:
			l.homes(d, next+1, depth, homes)
		default:
			for _, rank := range d.on {
				if slice := rank / l.tree.levels[depth].Slice; homes[slice] == nil {
					homes[slice] = d
				}
			}
		}
	}
}
