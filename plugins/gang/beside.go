package gang

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
	"github.com/lockstep-sh/lockstep/plugins/planner"
)

// beside is where a member that is placed by itself has to be, since other members of its gang, or of its
// slice, are there, and where it should be: near those that are next to it in rank.
type beside struct {
	pins []pin
	// levels are label keys, coarsest first; neighbours the nodes of the members next in rank.
	levels     []string
	neighbours []*v1.Node
	// begins is the level of the slice of which the member is the first, roomy the domains of that level
	// that seem to have room for the whole slice, or else for its members that exist.
	begins string
	roomy  map[string]bool
}

// pin is a topology in one of whose domains the node has to be: in this one, if it is known.
type pin struct {
	key, value string
	known      bool
}

// beside finds where the other members are. It costs a look-up for each of them.
func (pl *Gang) beside(ctx context.Context, pod *v1.Pod, need *gang.Need) (beside, error) {
	required, layout := need.Spec.RequiredTopology, &need.Spec.Layout
	if required == "" && len(layout.Levels) == 0 {
		return beside{}, nil
	}
	infos := pl.handle.SnapshotSharedLister().NodeInfos()
	var nodes []*v1.Node
	var on []placement.Standing
	for _, placed := range need.Placed {
		info, err := infos.Get(placed.Node)
		if err != nil || info.Node() == nil {
			continue // the node of a member is gone; other members show the domain
		}
		on = append(on, placement.Standing{Node: len(nodes), Rank: need.Ranks[placed.Pod.UID]})
		nodes = append(nodes, info.Node())
	}
	label := func(node int, key string) (string, bool) {
		value, ok := nodes[node].Labels[key]
		return value, ok
	}
	rank := need.Ranks[pod.UID]
	if !need.Ranked {
		rank = placement.Number(on, planner.Levels(layout), label)(0)
	}
	var b beside
	if required != "" {
		b.pin(required, on, label)
	}
	for _, level := range layout.Levels {
		b.levels = append(b.levels, level.Key)
		if level.Slice == 0 {
			continue
		}
		mates := slice(on, rank/level.Slice, level.Slice)
		b.pin(level.Key, mates, label)
		if len(mates) == 0 && b.begins == "" {
			room, err := pl.ready().RoomIn(ctx, byItself(pod, need), level.Key)
			if err != nil {
				return beside{}, err
			}
			b.begins, b.roomy = level.Key, roomy(room, level.Slice)
			if len(b.roomy) == 0 {
				b.roomy = roomy(room, together(need, rank, level.Slice))
			}
		}
	}
	inside := slices.DeleteFunc(on, func(standing placement.Standing) bool {
		return !slices.ContainsFunc(b.levels, func(key string) bool { _, ok := label(standing.Node, key); return ok })
	})
	for _, standing := range placement.Neighbours(inside, rank) {
		b.neighbours = append(b.neighbours, nodes[standing.Node])
	}
	return b, nil
}

// roomy returns the domains that have room for so many members.
func roomy(room map[string]int, members int) map[string]bool {
	values := map[string]bool{}
	for value, n := range room {
		if n >= members {
			values[value] = true
		}
	}
	return values
}

// together counts the members that are in the slice of a rank.
func together(need *gang.Need, rank, size int) int {
	n := 0
	for _, other := range need.Ranks {
		if other/size == rank/size {
			n++
		}
	}
	return max(n, 1)
}

// slice returns the members of a slice of a size.
func slice(on []placement.Standing, number, size int) []placement.Standing {
	var mates []placement.Standing
	for _, standing := range on {
		if standing.Rank/size == number {
			mates = append(mates, standing)
		}
	}
	return mates
}

// pin adds the domain that members are in. If they are apart, the first decides.
func (b *beside) pin(key string, on []placement.Standing, label func(int, string) (string, bool)) {
	one := pin{key: key}
	for _, standing := range on {
		if one.value, one.known = label(standing.Node, key); one.known {
			break
		}
	}
	b.pins = append(b.pins, one)
}

// allows reports whether the member may be on a node.
func (b *beside) allows(node *v1.Node) bool {
	for _, pin := range b.pins {
		if value, ok := node.Labels[pin.key]; !ok || pin.known && value != pin.value {
			return false
		}
	}
	return true
}

// score returns, from 0 to fwk.MaxScore, how many levels a node shares with a member that is
// next in rank; all on the node of one. For a member that begins a slice it is 0 where the rest
// of the slice would find no room, and more elsewhere.
func (b *beside) score(node *v1.Node) int64 {
	most := 0
	if len(b.roomy) > 0 {
		if !b.roomy[node.Labels[b.begins]] {
			return 0
		}
		most = 1
	}
	for _, neighbour := range b.neighbours {
		if neighbour.Name == node.Name {
			return fwk.MaxScore
		}
		for i, key := range b.levels {
			value, ok := node.Labels[key]
			if other, with := neighbour.Labels[key]; ok && with && value == other {
				most = max(most, i+1)
			}
		}
	}
	return fwk.MaxScore * int64(most) / int64(len(b.levels)+1)
}
