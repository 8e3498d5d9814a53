package gang

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
)

// placedMembers is what a member that is placed by itself has to know of the others of its gang.
type placedMembers struct {
	nodes []*v1.Node
	// on are those that have their places, by the indexes of their nodes.
	on []placement.PlacedMember
	// ranks are the member's own, or, where members carry none, the gaps that it may fill, the best first; see
	// placement.Gaps.
	ranks []int
	// taken are the numbers of those that have their places, in order, where members carry none.
	taken []int
	// waiting are the ranks of the others that are still to be placed; see from.
	waiting []int
}

// placedMembersOf looks the others up. Where members carry no numbers it numbers those that are placed.
func (pl *Gang) placedMembersOf(pod *v1.Pod, need *gangstate.Need) *placedMembers {
	c, placed := &placedMembers{ranks: []int{need.Ranks[pod.UID]}}, map[types.UID]bool{pod.UID: true}
	infos := pl.fw.SnapshotSharedLister().NodeInfos()
	for _, other := range need.Placed {
		placed[other.Pod.UID] = true
		info, err := infos.Get(other.Node)
		if err != nil || info.Node() == nil {
			continue // the node of a member is gone; other members show the domain
		}
		c.on = append(c.on, placement.PlacedMember{Node: len(c.nodes), Rank: need.Ranks[other.Pod.UID]})
		c.nodes = append(c.nodes, info.Node())
	}
	for uid, rank := range need.Ranks {
		if !placed[uid] {
			c.waiting = append(c.waiting, rank)
		}
	}
	if !need.Ranked {
		c.number(need.Spec.Layout)
	}
	return c
}

// number gives the members numbers, by which those that are placed are in whole slices.
func (c *placedMembers) number(layout gangspec.Layout) {
	levels := planner.Levels(&layout)
	placement.Number(c.on, levels, c.label)
	c.taken = make([]int, len(c.on))
	for i, standing := range c.on {
		c.taken[i] = standing.Rank
	}
	c.ranks = placement.Gaps(c.taken, levels)
}

// from gives those that wait the next free numbers after that of the member, where members carry none.
func (c *placedMembers) from(rank int) {
	if c.taken == nil {
		return
	}
	for n := range c.waiting {
		rank = placement.Free(c.taken, rank+1)
		c.waiting[n] = rank
	}
}

// label returns a label of one of the nodes.
func (c *placedMembers) label(node int, key string) (string, bool) {
	value, ok := c.nodes[node].Labels[key]
	return value, ok
}

// homeDomains returns the domains, by a label, of the slices that have members in any.
func (c *placedMembers) homeDomains(key string, size int) map[int]*string {
	homes := map[int]*string{}
	for slice, node := range placement.Homes(c.on, size, func(node int) (string, bool) { return c.label(node, key) }) {
		value, _ := c.label(node, key)
		homes[slice] = &value
	}
	return homes
}

// together counts the member and those that wait in its slice.
func (c *placedMembers) together(rank, size int) int {
	n := 1
	for _, other := range c.waiting {
		if other/size == rank/size {
			n++
		}
	}
	return n
}
