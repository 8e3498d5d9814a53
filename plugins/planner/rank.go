package planner

import (
	"context"
	"errors"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
)

// Levels returns the levels of a layout, as a placement knows them.
func Levels(layout *gang.Layout) []placement.Level {
	levels := make([]placement.Level, len(layout.Levels))
	for i, level := range layout.Levels {
		levels[i] = placement.Level{Key: level.Key, Slice: level.Slice}
	}
	return levels
}

// rank records where the placed members of a gang are, and gives all members numbers: their
// own, or, where they carry none, numbers by which the placed ones are in whole slices, and
// the others fill the gaps.
func (w *world) rank(problem *placement.Problem, i int, need *gang.Need) {
	g := &problem.Gangs[i]
	for _, placed := range need.Placed {
		if node, ok := w.tx.Index(placed.Node); ok {
			g.On = append(g.On, placement.Standing{Node: node, Rank: need.Ranks[placed.Pod.UID]})
		}
	}
	if need.Ranked || len(g.On) == 0 || len(g.Levels) == 0 {
		for position, member := range g.Members {
			rank, ok := need.Ranks[w.pods[member].UID]
			if !ok {
				rank = position
			}
			problem.Members[member].Rank = rank
		}
		return
	}
	gaps := placement.Number(g.On, g.Levels, w.Label)
	for n, member := range g.Members {
		problem.Members[member].Rank = gaps(n)
	}
}

// RoomIn returns how many more pods like the only one of an attempt the domains of a topology
// take, by arithmetic. It costs a look at each node.
func (p *Planner) RoomIn(ctx context.Context, a *gang.Attempt, key string) (room map[string]int, err error) {
	w, _, err := p.pose(a, nil, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.tx.Discard(ctx)) }()
	room = map[string]int{}
	for _, node := range w.all() {
		if value, ok := w.Label(node, key); ok {
			room[value] += min(w.Slots(0, node), w.deviceSlots(0, node))
		}
	}
	return room, nil
}
