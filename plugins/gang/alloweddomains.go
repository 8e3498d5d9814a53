package gang

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
)

// place is where a member that is placed alone must be, since other members of its gang, or of its slice, are there,
// and where it should be: near those next to it in rank.
type place struct {
	attempt *gangstate.Attempt
	// nodes are those of the placed members, and on has these by index in nodes.
	nodes []*v1.Node
	on    []placement.PlacedMember
	// levels are the topologies of the layout. fixed are those that have the whole gang, or each slice, in one domain. Both
	// are coarsest first.
	levels []placement.Level
	fixed  []fixedLevel
	// ranks are the member's own, or, if members carry none, the gaps that it may fill, the best first. within has where it
	// may be with any of them; nil for anywhere.
	ranks  []int
	within domainTree
	// rank is the best one with which some node will do, and best has where it may be with that.
	rank int
	best domainTree
	// neighbours are the nodes of the members next to it in rank.
	neighbours []*v1.Node
	// begins is the level of the slice of which the member is the first there, and roomy has the domains of that level
	// with room for the whole slice, or if there are none, for its members that exist.
	begins string
	roomy  map[string]int
}

// fixedLevel is a level with slices, and by slice a node in the domain of its placed members.
type fixedLevel struct {
	placement.Level
	homes map[int]int
}

// placeOf finds where the other members are, for the attempt to place a pod alone. It costs a look-up for each of them.
func (pl *Gang) placeOf(one *gangstate.Attempt) place {
	need := &one.Gangs[0]
	gang := placement.Gang{Required: need.Spec.RequiredTopology, Levels: planner.Levels(&need.Spec.Layout)}
	if gang.Required == "" && len(gang.Levels) == 0 {
		return place{}
	}
	p := place{attempt: one, levels: gang.Levels}
	infos := pl.fw.SnapshotSharedLister().NodeInfos()
	p.on = planner.PlacedMembers(need, p.levels, func(name string) (int, bool) {
		info, err := infos.Get(name)
		if err != nil || info.Node() == nil {
			return 0, false // the node is gone; other members show the domain
		}
		p.nodes = append(p.nodes, info.Node())
		return len(p.nodes) - 1, true
	}, p.label)
	if p.ranks = []int{need.Ranks[one.Leader]}; !need.Ranked {
		p.ranks = placement.Gaps(p.on, p.levels)
	}
	for _, level := range gang.FixedLevels() {
		p.fixed = append(p.fixed, fixedLevel{level, level.Homes(p.on, p.label)})
	}
	p.within = p.domainsOf(p.ranks...)
	return p
}

// label returns a label of one of the nodes.
func (p *place) label(node int, key string) (string, bool) {
	value, ok := p.nodes[node].Labels[key]
	return value, ok
}

// domainTree is the domains in which a node may be: by value of the label of a level, or anyDomain, and inside each of
// them those of the levels after it.
type domainTree map[string]domainTree

const anyDomain = "*" // no value of a label

// domainsOf returns the domains, by the fixed levels, in which the member may be with one of these ranks.
func (p *place) domainsOf(ranks ...int) domainTree {
	root := domainTree{}
	for _, rank := range ranks {
		at := root
		for _, level := range p.fixed {
			value := anyDomain
			if home, begun := level.homes[rank/level.Slice]; begun {
				value, _ = p.label(home, level.Key)
			}
			if at[value] == nil {
				at[value] = domainTree{}
			}
			at = at[value]
		}
	}
	return root
}

// allow reports whether a node is in one of the domains, of these levels.
func (t domainTree) allow(node *v1.Node, levels []fixedLevel) bool {
	if t == nil || len(levels) == 0 {
		return t != nil
	}
	value, inside := node.Labels[levels[0].Key]
	return inside && (t[value].allow(node, levels[1:]) || t[anyDomain].allow(node, levels[1:]))
}

// choose takes the first rank with which one of the nodes will do. For a member that begins a slice there it costs what
// planner.CapacityIn costs.
func (pl *Gang) choose(ctx context.Context, p *place, nodes []fwk.NodeInfo) error {
	i := slices.IndexFunc(p.ranks, func(rank int) bool {
		p.best = p.domainsOf(rank)
		return slices.ContainsFunc(nodes, func(info fwk.NodeInfo) bool { return p.best.allow(info.Node(), p.fixed) })
	})
	if i < 0 {
		return nil
	}
	p.rank = p.ranks[i]
	inside := slices.DeleteFunc(slices.Clone(p.on), func(placed placement.PlacedMember) bool {
		labels := p.nodes[placed.Node].Labels
		return !slices.ContainsFunc(p.levels, func(l placement.Level) bool { _, ok := labels[l.Key]; return ok })
	})
	for _, placed := range placement.Neighbours(inside, p.rank) {
		p.neighbours = append(p.neighbours, p.nodes[placed.Node])
	}
	for _, level := range p.fixed {
		if _, begun := level.homes[p.rank/level.Slice]; !begun && level.Slice != placement.WholeGang {
			return pl.begin(ctx, p, level)
		}
	}
	return nil
}

// begin finds the domains with room for a slice of a level of which the member is the first, beside what other members
// need that must be there.
func (pl *Gang) begin(ctx context.Context, p *place, level fixedLevel) error {
	allowed := func(node *v1.Node) bool { return p.best.allow(node, p.fixed) }
	together, owed := 1, map[string]int{}
	for _, other := range p.waiting() {
		if home, begun := level.homes[other/level.Slice]; begun && allowed(p.nodes[home]) {
			owed[p.nodes[home].Labels[level.Key]]++
		} else if other/level.Slice == p.rank/level.Slice {
			together++
		}
	}
	room, err := pl.ready().CapacityIn(ctx, p.attempt, level.Key, allowed,
		func(value string) int { return level.Slice + owed[value] })
	if err != nil {
		return err
	}
	most := 0
	for value := range room {
		room[value] -= owed[value]
		most = max(most, room[value])
	}
	wanted := level.Slice
	if most < wanted {
		wanted = together
	}
	maps.DeleteFunc(room, func(_ string, n int) bool { return n < wanted })
	p.begins, p.roomy = level.Key, room
	return nil
}

// waiting returns the ranks of the other members without a place. If members carry none, these are the next free ones.
func (p *place) waiting() (ranks []int) {
	need, placed, next := &p.attempt.Gangs[0], sets.New(p.attempt.Leader), p.rank
	for _, other := range need.Placed {
		placed.Insert(other.Pod.UID)
	}
	for uid, other := range need.Ranks {
		if placed.Has(uid) {
			continue
		}
		if !need.Ranked {
			next = placement.Free(p.on, next+1)
			other = next
		}
		ranks = append(ranks, other)
	}
	return ranks
}

// score returns, from 0 to fwk.MaxScore, how many levels a node shares with a member that is next in rank; all on the
// node of one, and none outside the best domains. For a member that begins a slice it is 0 where the rest of the slice
// would find no room, and more elsewhere.
func (p *place) score(node *v1.Node) int64 {
	if !p.best.allow(node, p.fixed) {
		return 0
	}
	most := 0
	if len(p.roomy) > 0 {
		if p.roomy[node.Labels[p.begins]] == 0 {
			return 0
		}
		most = 1
	}
	for _, neighbour := range p.neighbours {
		if neighbour.Name == node.Name {
			return fwk.MaxScore
		}
		for i, level := range p.levels {
			value, ok := node.Labels[level.Key]
			if other, with := neighbour.Labels[level.Key]; ok && with && value == other {
				most = max(most, i+1)
			}
		}
	}
	return fwk.MaxScore * int64(most) / int64(len(p.levels)+1)
}
