package placement

import (
	"cmp"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
)

// tree is the nodes of a scope, divided level by level into domains. It caches what they take until a change.
type tree struct {
	*solver
	levels []Level
	root   *branch
}

// branch is a domain of a level, inside one domain of each coarser level.
type branch struct {
	value string
	// outside: its nodes are in no domain of the level.
	outside bool
	nodes   []int
	inner   []*branch
	above   *branch
	// slots of classes on its nodes, as far as known.
	slots map[int]int
	// rooms of the domains inside it, roomiest first; by level and class, as far as known.
	rooms map[[2]int][]roomy
	// on are the ranks of the gang's placed members in it.
	on []int
	// used: members placed in this attempt are in it.
	used bool
}

// grow divides a scope. It reuses earlier domains of the same scope and levels.
func (s *solver) grow(scope []int, g Gang) *tree {
	key := grown{n: len(scope)}
	if len(scope) > 0 {
		key.first = &scope[0]
	}
	for _, level := range g.Levels {
		key.levels += level.Key + " "
	}
	root := s.grownTrees[key]
	if root == nil {
		root = &branch{nodes: scope}
		s.divide(root, g.Levels)
		s.grownTrees[key] = root
	}
	root.each(func(b *branch) { b.slots, b.rooms, b.on, b.used = nil, nil, nil, false })
	t := &tree{solver: s, levels: g.Levels, root: root}
	for _, standing := range g.On {
		t.addStanding(standing)
	}
	return t
}

// grown identifies a tree.
type grown struct {
	first  *int
	n      int
	levels string
}

// divide divides a branch into the domains of the first level, and these into those of the next.
func (s *solver) divide(b *branch, levels []Level) {
	if len(levels) == 0 {
		return
	}
	label, inside := s.label(levels[0].Key), 0
	for _, d := range topology.Domains(b.nodes, label) {
		b.inner = append(b.inner, &branch{value: d.Value, nodes: d.Nodes, above: b})
		inside += len(d.Nodes)
	}
	if inside < len(b.nodes) {
		b.inner = append(b.inner, &branch{outside: true, nodes: s.outside(b.nodes, levels[0].Key), above: b})
	}
	for _, inner := range b.inner {
		s.divide(inner, levels[1:])
	}
}

// outside lists the nodes in no domain of a level.
func (s *solver) outside(nodes []int, key string) []int {
	return slices.DeleteFunc(slices.Clone(nodes), func(node int) bool {
		_, ok := s.world.Label(node, key)
		return ok
	})
}

// addStanding records the domains of a placed member.
func (t *tree) addStanding(standing PlacedMember) {
	for _, b := range t.pathTo(standing.Node) {
		b.on = append(b.on, standing.Rank)
	}
}

// pathTo returns the domains of a node, coarsest first, as far as the tree has them. The node need not be in the
// scope.
func (t *tree) pathTo(node int) (path []*branch) {
	b := t.root
	for _, level := range t.levels {
		value, ok := t.world.Label(node, level.Key)
		i := slices.IndexFunc(b.inner, func(inner *branch) bool { return inner.outside == !ok && inner.value == value })
		if i < 0 {
			return path
		}
		b = b.inner[i]
		path = append(path, b)
	}
	return path
}

// slicedDomain returns the domain of a node at the level at depth; nil if the tree does not have it, or the node is in
// no domain of a level with slices down to that.
func (t *tree) slicedDomain(node, depth int) *branch {
	path := t.pathTo(node)
	if len(path) <= depth {
		return nil
	}
	for i, b := range path[:depth+1] {
		if b.outside && t.levels[i].sliced() {
			return nil
		}
	}
	return path[depth]
}

// each visits a branch and all branches in it.
func (b *branch) each(visit func(*branch)) {
	visit(b)
	for _, inner := range b.inner {
		inner.each(visit)
	}
}

// markTaken records that members were placed in a domain of the finest level.
func (b *branch) markTaken() {
	for ; b != nil; b = b.above {
		b.slots, b.rooms, b.used = nil, nil, true
	}
}

// markFreed records that the placements in a domain were undone.
func (b *branch) markFreed() {
	b.each(func(inner *branch) { inner.slots, inner.rooms, inner.used = nil, nil, false })
	for above := b.above; above != nil; above = above.above {
		above.slots, above.rooms = nil, nil
	}
}

// slotsOf bounds how many members of a class a domain takes.
func (t *tree) slotsOf(b *branch, class int) int {
	if n, known := b.slots[class]; known {
		return n
	}
	n := 0
	for _, inner := range b.inner {
		n += t.slotsOf(inner, class)
	}
	if len(b.inner) == 0 {
		for _, node := range b.nodes {
			n += t.world.Slots(class, node)
		}
		t.effort -= len(b.nodes) / slotsPerTake
	}
	if b.slots == nil {
		b.slots = map[int]int{}
	}
	b.slots[class] = n
	return n
}

// room returns how many members of a class a domain of the level at depth takes, in whole slices of that level and of
// those inside.
func (t *tree) room(b *branch, depth, class int) int {
	n, size := 0, t.levels[depth].Slice
	switch inner := t.levels[depth+1:]; {
	case size > 0 && b.outside:
		return 0
	case slices.ContainsFunc(inner, Level.sliced):
		for _, d := range b.inner {
			n += t.room(d, depth+1, class)
		}
	default:
		n = t.slotsOf(b, class)
	}
	if size > 1 {
		n -= n % size
	}
	return n
}

// unit returns how many members must stay together at a level: a slice of it, or of the next level inside with slices.
func (t *tree) unit(depth int) int {
	for _, level := range t.levels[depth:] {
		if level.sliced() {
			return level.Slice
		}
	}
	return 1
}

// spread returns over how many domains inside a branch members of a class must spread at least, summed over the levels
// from depth on; a single domain counts as 0. It is the number of edges between domains if the members are laid out in
// a ring.
func (t *tree) spread(b *branch, depth, class, members int) int {
	edges := 0
	for level := depth; level < len(t.levels) && members > 1; level++ {
		if n := fewest(t.roomsOf(b, depth, level, class), members, t.unit(level)); n > 1 {
			edges += n
		}
	}
	return edges
}

// fewest returns how many domains, roomiest first, take members in slices of a size, the last of which may have fewer.
func fewest(domains []roomy, members, size int) int {
	rest := members % size
	whole, domainsUsed, spare := members-rest, 0, 0
	for _, d := range domains {
		if d.whole >= whole && d.slots >= members {
			return 1
		}
	}
	for _, d := range domains {
		if whole <= 0 {
			break
		}
		domainsUsed++
		spare = max(spare, d.slots-min(d.whole, whole))
		whole -= d.whole
	}
	if spare < rest {
		domainsUsed++
	}
	return domainsUsed + max(0, whole) // each remaining member has its own domain
}

// roomy is how many members a domain takes, in whole slices and in all.
type roomy struct{ whole, slots int }

// roomsOf lists what the domains of a level inside a branch take of a class, roomiest first; depth is the first level
// inside the branch.
func (t *tree) roomsOf(b *branch, depth, level, class int) []roomy {
	key := [2]int{level, class}
	if list, known := b.rooms[key]; known {
		return list
	}
	var list []roomy
	for _, d := range b.inner {
		switch {
		case depth < level:
			list = append(list, t.roomsOf(d, depth+1, level, class)...)
		case !d.outside:
			list = append(list, roomy{t.room(d, level, class), t.slotsOf(d, class)})
		}
	}
	slices.SortFunc(list,
		func(a, b roomy) int { return cmp.Or(cmp.Compare(b.whole, a.whole), cmp.Compare(b.slots, a.slots)) })
	if b.rooms == nil {
		b.rooms = map[[2]int][]roomy{}
	}
	b.rooms[key] = list
	return list
}

// Most bounds how many of so many members of a class, laid out as a gang, find a place on nodes in whole slices. It
// asks the world only for slots and labels.
func Most(w World, g Gang, nodes []int, class, members int) int {
	s := newSolver(w, Problem{})
	g.Levels = Sliced(g.Levels)
	t := s.grow(nodes, Gang{Levels: g.Levels})
	slots := t.slotsOf(t.root, class)
	if len(g.Levels) == 0 {
		return min(members, slots)
	}
	whole, unit := 0, t.unit(0)
	for _, d := range t.root.inner {
		whole += t.room(d, 0, class)
	}
	rest := members % unit
	if whole >= members-rest {
		return min(members, slots) // the last slice is smaller, and may fit where a whole one does not
	}
	return min(whole+rest, slots)
}
