package gang

import (
	"context"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
)

// place is where a member that is placed by itself has to be, since other members of its gang, or of its
// slice, are there, and where it should be: near those that are next to it in rank.
type place struct {
	within *allowedDomain
	// levels are label keys, coarsest first.
	levels []string
	// candidates are for the ranks that it may have, the best first, among placed; attempt is that to place it.
	candidates []candidate
	placed     *placedMembers
	attempt    *gangstate.Attempt
	// at is where the best candidate is that has a node; neighbours are the nodes of the members next in rank.
	at         *allowedDomain
	neighbours []*v1.Node
	// begins is the level of the slice of which the member is the first there, roomy the domains of that level
	// that seem to have room for the whole slice, or else for its members that exist.
	begins string
	roomy  map[string]bool
}

// candidate is where a member has to be with a rank.
type candidate struct {
	rank  int
	fixed []fixedDomain
	// begins is the coarsest level of which it begins a slice, if any, and within where that has to be.
	begins *gangspec.Level
	within *allowedDomain
}

// placeOf finds where the other members are, for the attempt to place a pod by itself. It costs a look-up for each of
// them.
func (pl *Gang) placeOf(pod *v1.Pod, one *gangstate.Attempt) place {
	need := &one.Gangs[0]
	required, layout := need.Spec.RequiredTopology, &need.Spec.Layout
	if required == "" && len(layout.Levels) == 0 {
		return place{}
	}
	c := pl.placedMembersOf(pod, need)
	b := place{placed: c, attempt: one, candidates: make([]candidate, len(c.ranks))}
	var whole []fixedDomain
	if required != "" {
		whole = []fixedDomain{{required, c.homeDomains(required, math.MaxInt)[0]}}
	}
	for i, rank := range c.ranks {
		b.candidates[i] = candidate{rank: rank, fixed: slices.Clone(whole)}
	}
	for _, level := range layout.Levels {
		b.levels = append(b.levels, level.Key)
		if level.Slice == 0 {
			continue
		}
		homes := c.homeDomains(level.Key, level.Slice)
		for i := range b.candidates {
			s := &b.candidates[i]
			s.fixed = append(s.fixed, fixedDomain{level.Key, homes[s.rank/level.Slice]})
			if homes[s.rank/level.Slice] == nil && s.begins == nil {
				s.begins, s.within = &level, allowedDomainOf(*s)
			}
		}
	}
	b.within = allowedDomainOf(b.candidates...)
	return b
}

// choose takes the first candidate for which one of the nodes will do. For a member that begins a slice there it costs
// what planner.CapacityIn costs.
func (pl *Gang) choose(ctx context.Context, b *place, nodes []fwk.NodeInfo) error {
	for _, s := range b.candidates {
		b.at, b.neighbours = allowedDomainOf(s), nil
		if !slices.ContainsFunc(nodes, func(info fwk.NodeInfo) bool { return b.at.allows(info.Node()) }) {
			continue
		}
		c := b.placed
		c.from(s.rank)
		inside := slices.DeleteFunc(slices.Clone(c.on), func(standing placement.PlacedMember) bool {
			return !slices.ContainsFunc(b.levels, func(key string) bool { _, ok := c.label(standing.Node, key); return ok })
		})
		for _, standing := range placement.Neighbours(inside, s.rank) {
			b.neighbours = append(b.neighbours, c.nodes[standing.Node])
		}
		if s.begins == nil {
			return nil
		}
		return pl.begin(ctx, b, s)
	}
	return nil
}

// begin finds the domains in which there is room for a slice of which the member is the first, beside what other
// members need that have to be there.
func (pl *Gang) begin(ctx context.Context, b *place, s candidate) error {
	c, level, within := b.placed, s.begins, s.within
	domains, owed := map[int]string{}, map[string]int{}
	for _, standing := range c.on {
		if value, ok := c.label(standing.Node, level.Key); ok && within.allows(c.nodes[standing.Node]) {
			domains[standing.Rank/level.Slice] = value
		}
	}
	for _, rank := range c.waiting {
		if value, ok := domains[rank/level.Slice]; ok {
			owed[value]++
		}
	}
	room, err := pl.ready().CapacityIn(ctx, b.attempt, level.Key, within.allows, func(value string) int {
		return level.Slice + owed[value]
	})
	if err != nil {
		return err
	}
	for value, members := range owed {
		room[value] -= members
	}
	b.begins, b.roomy = level.Key, roomy(room, level.Slice)
	if len(b.roomy) == 0 {
		b.roomy = roomy(room, c.together(s.rank, level.Slice))
	}
	return nil
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

// allowedDomain is where a node has to be to be in one domain with the members of some slice: the values of a label
// that it may have, and for each of them, or for any, what goes for the levels inside.
type allowedDomain struct {
	key      string // empty: any node will do
	in       map[string]*allowedDomain
	anywhere *allowedDomain
}

// fixedDomain is a topology in whose domain the node has to be: that of a value, or any if that is nil.
type fixedDomain struct {
	key   string
	value *string
}

// allowedDomainOf returns where a node is in the fixed domains of one of these candidates, which all have the same
// keys.
func allowedDomainOf(spots ...candidate) *allowedDomain {
	root := &allowedDomain{}
	for _, s := range spots {
		g := root
		for _, one := range s.fixed {
			g = g.inside(one)
		}
	}
	return root
}

// inside returns what goes for the levels inside a fixed domain.
func (g *allowedDomain) inside(one fixedDomain) *allowedDomain {
	g.key = one.key
	if one.value == nil {
		if g.anywhere == nil {
			g.anywhere = &allowedDomain{}
		}
		return g.anywhere
	}
	if g.in == nil {
		g.in = map[string]*allowedDomain{}
	}
	if g.in[*one.value] == nil {
		g.in[*one.value] = &allowedDomain{}
	}
	return g.in[*one.value]
}

// allows reports whether the member may be on a node.
func (g *allowedDomain) allows(node *v1.Node) bool {
	if g == nil || g.key == "" {
		return true
	}
	value, ok := node.Labels[g.key]
	if !ok {
		return false
	}
	in := g.in[value]
	return in != nil && in.allows(node) || g.anywhere != nil && g.anywhere.allows(node)
}

// score returns, from 0 to fwk.MaxScore, how many levels a node shares with a member that is next in rank; all on the
// node of one, and none outside the best candidate. For a member that begins a slice it is 0 where the rest of the
// slice would find no room, and more elsewhere.
func (b *place) score(node *v1.Node) int64 {
	if !b.at.allows(node) {
		return 0
	}
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
