package gang

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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

// beside finds where the other members are. It costs a look-up for each of them, and for a member that begins a slice what
// planner.RoomIn costs.
func (pl *Gang) beside(ctx context.Context, pod *v1.Pod, need *gang.Need) (beside, error) {
	required, layout := need.Spec.RequiredTopology, &need.Spec.Layout
	if required == "" && len(layout.Levels) == 0 {
		return beside{}, nil
	}
	c := pl.companyOf(pod, need)
	var b beside
	if required != "" {
		b.pin(required, c.on, c.label)
	}
	for _, level := range layout.Levels {
		b.levels = append(b.levels, level.Key)
		if level.Slice == 0 {
			continue
		}
		mates := c.slice(c.rank, level.Slice)
		b.pin(level.Key, mates, c.label)
		if len(mates) == 0 && b.begins == "" {
			if err := pl.begin(ctx, &b, c, level, byItself(pod, need)); err != nil {
				return beside{}, err
			}
		}
	}
	inside := slices.DeleteFunc(c.on, func(standing placement.Standing) bool {
		return !slices.ContainsFunc(b.levels, func(key string) bool { _, ok := c.label(standing.Node, key); return ok })
	})
	for _, standing := range placement.Neighbours(inside, c.rank) {
		b.neighbours = append(b.neighbours, c.nodes[standing.Node])
	}
	return b, nil
}

// begin finds the domains in which there is room for a slice of which the member is the first, beside what other members need that
// have to be there.
func (pl *Gang) begin(ctx context.Context, b *beside, c *company, level gang.Level, a *gang.Attempt) error {
	domains, owed := map[int]string{}, map[string]int{}
	for _, standing := range c.on {
		if value, ok := c.label(standing.Node, level.Key); ok && b.allows(c.nodes[standing.Node]) {
			domains[standing.Rank/level.Slice] = value
		}
	}
	for _, rank := range c.waiting {
		if value, ok := domains[rank/level.Slice]; ok {
			owed[value]++
		}
	}
	room, err := pl.ready().RoomIn(ctx, a, level.Key, b.allows, func(value string) int { return level.Slice + owed[value] })
	if err != nil {
		return err
	}
	for value, members := range owed {
		room[value] -= members
	}
	b.begins, b.roomy = level.Key, roomy(room, level.Slice)
	if len(b.roomy) == 0 {
		b.roomy = roomy(room, c.together(level.Slice))
	}
	return nil
}

// company is what a member that is placed by itself has to know of the others of its gang.
type company struct {
	nodes []*v1.Node
	// on are those that have their places, by the indexes of their nodes.
	on []placement.Standing
	// rank is the member's own, waiting are those of the others that are still to be placed.
	rank    int
	waiting []int
}

// companyOf looks the others up. Where members carry no numbers it numbers those that are placed, and the others fill the gaps.
func (pl *Gang) companyOf(pod *v1.Pod, need *gang.Need) *company {
	c, placed := &company{rank: need.Ranks[pod.UID]}, map[types.UID]bool{pod.UID: true}
	infos := pl.handle.SnapshotSharedLister().NodeInfos()
	for _, other := range need.Placed {
		placed[other.Pod.UID] = true
		info, err := infos.Get(other.Node)
		if err != nil || info.Node() == nil {
			continue // the node of a member is gone; other members show the domain
		}
		c.on = append(c.on, placement.Standing{Node: len(c.nodes), Rank: need.Ranks[other.Pod.UID]})
		c.nodes = append(c.nodes, info.Node())
	}
	for uid, rank := range need.Ranks {
		if !placed[uid] {
			c.waiting = append(c.waiting, rank)
		}
	}
	if need.Ranked {
		return c
	}
	c.rank = placement.Number(c.on, planner.Levels(&need.Spec.Layout), c.label)(0)
	next, taken := c.rank+1, map[int]bool{}
	for _, standing := range c.on {
		taken[standing.Rank] = true
	}
	for n := range c.waiting {
		for taken[next] {
			next++
		}
		c.waiting[n], next = next, next+1
	}
	return c
}

// label returns a label of one of the nodes.
func (c *company) label(node int, key string) (string, bool) {
	value, ok := c.nodes[node].Labels[key]
	return value, ok
}

// slice returns the members that have their places of the slice that a rank is in.
func (c *company) slice(rank, size int) []placement.Standing {
	var mates []placement.Standing
	for _, standing := range c.on {
		if standing.Rank/size == rank/size {
			mates = append(mates, standing)
		}
	}
	return mates
}

// together counts the member and those that wait in its slice.
func (c *company) together(size int) int {
	n := 1
	for _, rank := range c.waiting {
		if rank/size == c.rank/size {
			n++
		}
	}
	return n
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
