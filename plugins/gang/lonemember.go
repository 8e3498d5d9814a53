package gang

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
)

// place is where a member that is placed alone must be, since other members of its gang, or of its slice, are there,
// and where it should be: near those next to it in rank.
type place struct {
	attempt *gangstate.Attempt
	gang    placement.Gang
	// nodes are those of its placed members.
	nodes []*v1.Node
	// rank is that of the member, and waiting are those of the others without a place.
	rank    int
	waiting []int
	// bonds say where the member must be, and bondsOf where one of another rank must be.
	bonds   []placement.Bond
	bondsOf func(rank int) []placement.Bond
	// neighbours are the nodes of the members next to it in rank.
	neighbours []*v1.Node
	// begins is the level of the slice of which the member is the first there, and roomy has the domains of that level
	// with room for the whole slice, or if there are none, for its members that exist.
	begins string
	roomy  map[string]int
}

// placeOf finds where the other members are, for the attempt to place a pod alone. It costs a look-up for each of them.
func (pl *Gang) placeOf(one *gangstate.Attempt) place {
	need := &one.Gangs[0]
	gang := placement.Gang{Required: need.Spec.RequiredTopology, Levels: planner.Levels(&need.Spec.Layout)}
	if gang.Required == "" && len(gang.Levels) == 0 {
		return place{}
	}
	p := &place{attempt: one, gang: gang}
	infos := pl.fw.SnapshotSharedLister().NodeInfos()
	on, ranks := planner.Ranks(need, gang.Levels, func(name string) (int, bool) {
		info, err := infos.Get(name)
		if err != nil || info.Node() == nil {
			return 0, false // the node is gone; other members show the domain
		}
		p.nodes = append(p.nodes, info.Node())
		return len(p.nodes) - 1, true
	}, p.label)
	p.gang.On, p.rank = on, ranks[one.Leader]
	delete(ranks, one.Leader)
	p.waiting = slices.Collect(maps.Values(ranks))
	p.bondsOf = p.gang.Bonds(p.label)
	p.bonds = p.bondsOf(p.rank)
	return *p
}

// label returns a label of one of the nodes.
func (p *place) label(node int, key string) (string, bool) {
	value, ok := p.nodes[node].Labels[key]
	return value, ok
}

// allows reports whether the member may be on a node.
func (p *place) allows(node *v1.Node) bool {
	return !slices.ContainsFunc(p.bonds, func(bond placement.Bond) bool { return !bond.Allows(node.Labels) })
}

// prefer finds where the member should be. If it begins a slice there, that costs what planner.CapacityIn costs.
func (pl *Gang) prefer(ctx context.Context, p *place) error {
	inside := slices.DeleteFunc(slices.Clone(p.gang.On), func(placed placement.PlacedMember) bool {
		labels := p.nodes[placed.Node].Labels
		return !slices.ContainsFunc(p.gang.Levels, func(l placement.Level) bool { _, ok := labels[l.Key]; return ok })
	})
	for _, placed := range placement.Neighbours(inside, p.rank) {
		p.neighbours = append(p.neighbours, p.nodes[placed.Node])
	}
	fixed := slices.IndexFunc(p.bonds, func(b placement.Bond) bool { return b.Home < 0 && b.Slice != placement.WholeGang })
	if fixed < 0 {
		return nil
	}
	return pl.begin(ctx, p, fixed)
}

// begin finds the domains with room for a slice of a fixed level of which the member is the first, beside what other
// members need that must be there.
func (pl *Gang) begin(ctx context.Context, p *place, fixed int) error {
	level := p.bonds[fixed]
	together, owed := 1, map[string]int{}
	for _, rank := range p.waiting {
		other := p.bondsOf(rank)[fixed]
		if other.Home >= 0 && p.allows(p.nodes[other.Home]) {
			owed[other.Value]++
		} else if other.Number == level.Number {
			together++
		}
	}
	room, err := pl.ready().CapacityIn(ctx, p.attempt, level.Key, p.allows,
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

// score returns, from 0 to fwk.MaxScore, how many levels a node shares with a member that is next in rank; all on the
// node of one. For a member that begins a slice it is 0 where the rest of the slice would find no room, and more
// elsewhere.
func (p *place) score(node *v1.Node) int64 {
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
		for i, level := range p.gang.Levels {
			value, ok := node.Labels[level.Key]
			if other, with := neighbour.Labels[level.Key]; ok && with && value == other {
				most = max(most, i+1)
			}
		}
	}
	return fwk.MaxScore * int64(most) / int64(len(p.gang.Levels)+1)
}
