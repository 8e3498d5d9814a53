package planner

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
)

// Levels converts the levels of a layout to those of a placement.
func Levels(layout *gangspec.Layout) []placement.Level {
	levels := make([]placement.Level, len(layout.Levels))
	for i, level := range layout.Levels {
		levels[i] = placement.Level{Key: level.Key, Slice: level.Slice}
	}
	return levels
}

// Ranks returns where the placed members of a gang are, those whose nodes index knows, and the ranks of the others.
// If they carry no numbers, placed ones are numbered by their slices, and the others get, in their order, the lowest
// numbers left.
func Ranks(need *gangstate.Need, levels []placement.Level, index func(node string) (int, bool),
	label func(node int, key string) (string, bool)) (on []placement.PlacedMember, ranks map[types.UID]int) {
	ranks = maps.Clone(need.Ranks)
	for _, placed := range need.Placed {
		if node, ok := index(placed.Node); ok {
			on = append(on, placement.PlacedMember{Node: node, Rank: need.Ranks[placed.Pod.UID]})
		}
		delete(ranks, placed.Pod.UID)
	}
	if need.Ranked || len(on) == 0 {
		return on, ranks
	}
	placement.Number(on, levels, label)
	free := placement.Free(on, len(ranks))
	inOrder := func(a, b types.UID) int { return cmp.Compare(need.Ranks[a], need.Ranks[b]) }
	for i, uid := range slices.SortedFunc(maps.Keys(ranks), inOrder) {
		ranks[uid] = free[i]
	}
	return on, ranks
}

// setRanks records where the placed members of a gang are, and ranks the others.
func (w *planState) setRanks(problem *placement.Problem, i int, need *gangstate.Need) {
	g := &problem.Gangs[i]
	on, ranks := Ranks(need, g.Levels, w.tx.Index, w.Label)
	g.On = on
	for position, member := range g.Members {
		rank, known := ranks[w.pods[member].UID]
		if !known {
			rank = position
		}
		problem.Members[member].Rank = rank
	}
}

// CapacityIn returns how many pods like the only one of an attempt each domain of a topology takes on the nodes that
// count, up to what is wanted of it. It computes bounds for each node, and runs the filters on as few as it can.
func (p *Planner) CapacityIn(ctx context.Context, a *gangstate.Attempt, key string, counts func(*v1.Node) bool,
	want func(value string) int) (room map[string]int, err error) {
	w, _, err := p.newProblem(ctx, a, nil, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.tx.Discard(ctx)) }()
	room = map[string]int{}
	view, err := w.viewOf(ctx, 0, w.pods[0])
	if err != nil || view == nil {
		return room, err
	}
	slots := func(node int) int { return min(w.Slots(0, node), w.deviceSlots(0, node)) }
	left := map[string][]int{}
	for _, node := range w.tx.AllNodes() {
		if value, ok := w.Label(node, key); ok && counts(w.tx.Node(node).Node()) && slots(node) > 0 {
			left[value] = append(left[value], node)
		}
	}
	for least := 1; ; least *= 2 { // doubling keeps the rounds few if the filters refuse many
		var asked []int
		for value, nodes := range left {
			n, lacking := 0, want(value)-room[value]
			for ; lacking > 0 && n < len(nodes) || 0 < n && n < min(least, len(nodes)); n++ {
				lacking -= slots(nodes[n])
			}
			asked, left[value] = append(asked, nodes[:n]...), nodes[n:]
		}
		if len(asked) == 0 {
			return room, nil
		}
		fits, err := w.filter(ctx, view, 0, asked)
		if err != nil {
			return nil, err
		}
		for _, node := range fits {
			value, _ := w.Label(node, key)
			room[value] += slots(node)
		}
	}
}
