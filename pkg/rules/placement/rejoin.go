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
	level, homes := l.tree.levels[depth], l.homes(depth)
	var order []*branch
	units := map[*branch][][]int{}
	for _, unit := range l.units(run, level.Slice) {
		slice := l.Members[unit[0]].Rank / level.Slice
		switch home, stands := homes[slice]; {
		case !stands:
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

// homes returns the domains of the level at depth of its slices that have placed members; nil for one that the tree
// does not have, or that is in no domain of a coarser level with slices.
func (l *layout) homes(depth int) map[int]*branch {
	homes := map[int]*branch{}
	for slice, node := range l.tree.levels[depth].homes(l.gang.On, l.world.Label) {
		homes[slice] = l.tree.slicedDomain(node, depth)
	}
	return homes
}
