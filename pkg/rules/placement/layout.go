package placement

import (
	"cmp"
	"context"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// layout places members of a gang, in order of rank, in the domains of its levels: whole slices in one domain, and the
// rest in as few domains as possible, so that neighbours in rank are neighbours in the topology. At each level, as in
// Kueue's topology-aware scheduling: 1. the tightest domain that takes them all; 2. otherwise the roomiest, and the
// tightest for the rest. For members that are alike this finds a place for all slices if there is one, since slices of
// a level are alike then. Otherwise it is greedy.
type layout struct {
	*filling
	tree *tree
	gang Gang
}

// lay places a run of members in a branch whose next level is at depth. It returns the members without a place; of a
// slice, all or none.
func (l *layout) lay(ctx context.Context, b *branch, depth int, run []int) (left []int, err error) {
	if len(run) == 0 {
		return nil, nil
	}
	if depth == len(l.tree.levels) {
		return l.leaf(ctx, b, run)
	}
	if ok, err := l.together(ctx, b, depth, run); ok || err != nil {
		return nil, err
	}
	if runs := l.byClass(run); len(runs) > 1 && !slices.ContainsFunc(l.tree.levels[depth:], Level.sliced) {
		for _, alike := range runs {
			without, err := l.lay(ctx, b, depth, alike)
			if err != nil {
				return nil, err
			}
			left = append(left, without...)
		}
		return left, nil
	}
	return l.distribute(ctx, b, depth, run)
}

// leaf places members in a domain of the finest level: beside placed members next to them in rank, if there is room,
// and the others as the world scores.
func (l *layout) leaf(ctx context.Context, b *branch, run []int) (left []int, err error) {
	for _, m := range run {
		for _, node := range l.nodesBeside(b, l.Members[m].Rank) {
			if ok, err := l.fillingOn([]int{node}).takePlace(ctx, m, 1); err != nil {
				return nil, err
			} else if ok {
				break
			}
		}
	}
	if err := l.fillingOn(b.nodes).place(ctx, l.unplaced(run)); err != nil {
		return nil, err
	}
	b.markTaken()
	return l.unplaced(run), nil
}

// fillingOn returns a filling that uses only some nodes.
func (l *layout) fillingOn(nodes []int) *filling {
	return &filling{solver: l.solver, tactic: l.tactic, nodes: nodes, placed: l.placed, open: map[int]*opened{}}
}

// nodesBeside lists the nodes of a branch with the members next to a rank on either side.
func (l *layout) nodesBeside(b *branch, rank int) []int {
	if len(b.on) == 0 {
		return nil
	}
	on := slices.DeleteFunc(slices.Clone(l.gang.On), func(s PlacedMember) bool {
		return !slices.Contains(b.nodes, s.Node)
	})
	var nodes []int
	for _, standing := range Neighbours(on, rank) {
		nodes = append(nodes, standing.Node)
	}
	return nodes
}

// unplaced lists the members of a run without a place.
func (l *layout) unplaced(run []int) []int {
	return slices.DeleteFunc(slices.Clone(run), func(m int) bool { _, ok := l.placed[m]; return ok })
}

// put places a whole run in a domain of the level at depth, or none of it.
func (l *layout) put(ctx context.Context, d *branch, depth int, run []int) (ok bool, err error) {
	if d.outside && l.tree.levels[depth].sliced() {
		return false, nil
	}
	mark := l.world.Mark()
	left, err := l.lay(ctx, d, depth+1, run)
	if err != nil || len(left) == 0 {
		return err == nil, err
	}
	for _, m := range run {
		delete(l.placed, m)
	}
	d.markFreed()
	return false, l.world.Undo(ctx, mark)
}

// together places a run in one domain, if one takes it.
func (l *layout) together(ctx context.Context, b *branch, depth int, run []int) (ok bool, err error) {
	all := l.load(run)
	domains := slices.DeleteFunc(slices.Clone(b.inner), func(d *branch) bool { return !l.mayTakeAll(d, depth, all) })
	l.sortDomains(domains, all,
		func(d *branch) [2]int { return [2]int{l.spread(d, depth, all, all.members), l.slack(d, all)} })
	for i, d := range domains {
		if i > 0 && l.spent() {
			return false, nil
		}
		if ok, err := l.put(ctx, d, depth, run); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// load is units to place, with the number of members of each class, the most frequent class first.
type load struct {
	units   [][]int
	members int
	classes []share
	// rank is that of the first member.
	rank int
}

func (l *layout) load(units ...[]int) load {
	all := slices.Concat(units...)
	w := load{units: units, members: len(all), classes: l.mix(nil, all), rank: l.Members[all[0]].Rank}
	slices.SortStableFunc(w.classes, func(a, b share) int { return cmp.Compare(b.want, a.want) })
	return w
}

// mayTakeAll reports whether bounds allow a domain to take a whole load.
func (l *layout) mayTakeAll(d *branch, depth int, w load) bool {
	if d.outside {
		return false // nodes outside all domains are not together
	}
	for _, class := range w.classes {
		if l.tree.slotsOf(d, class.class) < class.want {
			return false
		}
	}
	if len(w.classes) > 1 {
		return true
	}
	// The last slice may be smaller than the others, and fit where a whole one does not.
	return l.tree.room(d, depth, w.classes[0].class) >= w.members-w.members%l.tree.unit(depth)
}

// spread returns over how many domains inside a domain of the level at depth so many members of a load must spread, as
// if all were of its most frequent class; see tree.spread.
func (l *layout) spread(d *branch, depth int, w load, members int) int {
	return l.tree.spread(d, depth+1, w.classes[0].class, min(members, w.classes[0].want))
}

// slack returns how many members beyond a load a domain would take, by the scarcest class.
func (l *layout) slack(d *branch, w load) int {
	least := furthest
	for _, class := range w.classes {
		least = min(least, l.tree.slotsOf(d, class.class)-class.want)
	}
	return least
}

// rankedBranch is a domain and its sort keys.
type rankedBranch struct {
	*branch
	near int
	size [2]int
}

// compare orders domains: 1. those with members of the gang, the nearest in rank first; 2. those in which members have
// just been placed; 3. by size, the least first; 4. value. Nodes outside all domains come last.
func (j rankedBranch) compare(other rankedBranch) int {
	return cmp.Or(bools.Compare(j.outside, other.outside), cmp.Compare(j.near, other.near),
		slices.Compare(j.size[:], other.size[:]), cmp.Compare(j.value, other.value))
}

// sortDomains sorts the domains for a load.
func (l *layout) sortDomains(domains []*branch, w load, size func(*branch) [2]int) {
	list := make([]rankedBranch, len(domains))
	for i, d := range domains {
		list[i] = rankedBranch{d, l.near(d, w.rank), size(d)}
	}
	slices.SortStableFunc(list, rankedBranch.compare)
	for i, j := range list {
		domains[i] = j.branch
	}
}

// near returns the distance of a rank to the members of the gang in a domain.
func (l *layout) near(d *branch, rank int) int {
	least := furthest
	if d.used {
		least--
	}
	for _, on := range d.on {
		least = min(least, max(on-rank, rank-on))
	}
	return least
}

// furthest is more than any distance of ranks.
const furthest = 1 << 30

// distribute places a run in several domains.
func (l *layout) distribute(ctx context.Context, b *branch, depth int, run []int) (left []int, err error) {
	size := l.tree.unit(depth)
	var whole, broken [][]int
	for _, unit := range l.units(run, size) {
		if len(unit) == size {
			whole = append(whole, unit)
		} else {
			broken = append(broken, unit)
		}
	}
	open := slices.Clone(b.inner)
	if l.gang.Even && l.tree.levels[depth].Slice == 0 {
		if whole, err = l.placeEvenly(ctx, open, depth, whole); err != nil {
			return nil, err
		}
	}
	for len(whole) > 0 && len(open) > 0 && !l.spent() {
		var d *branch
		var n int
		if d, n, open = l.nextDomain(open, depth, l.load(whole...)); d == nil {
			break
		}
		if whole, err = l.placeSome(ctx, d, depth, whole, n); err != nil {
			return nil, err
		}
	}
	if size == 1 {
		return slices.Concat(whole...), nil
	}
	slices.SortStableFunc(broken, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	for _, unit := range append(whole, broken...) {
		ok, err := l.anywhere(ctx, b, depth, unit)
		if err != nil {
			return nil, err
		}
		if !ok {
			left = append(left, unit...)
		}
	}
	return left, nil
}

// placeEvenly places units evenly in the fewest domains that take them all. It returns the others.
func (l *layout) placeEvenly(ctx context.Context, domains []*branch, depth int,
	units [][]int) (rest [][]int, err error) {
	if len(units) == 0 {
		return nil, nil
	}
	w, takes := l.load(units...), map[*branch]int{}
	for _, d := range domains {
		takes[d] = l.unitsTaken(d, depth, w)
	}
	domains = slices.Clone(domains)
	l.sortDomains(domains, w, func(d *branch) [2]int { return [2]int{-takes[d]} })
	left := len(units)
	needed := slices.IndexFunc(domains, func(d *branch) bool { left -= takes[d]; return left <= 0 }) + 1
	for i, d := range slices.Backward(domains[:needed]) { // the smallest first: the others must take what it lacks
		n := min((len(units)+i)/(i+1), takes[d])
		before := len(units)
		if units, err = l.placeSome(ctx, d, depth, units, n); err != nil {
			return nil, err
		}
		if len(units) == before && n > 0 {
			return units, nil
		}
	}
	return units, nil
}

// nextDomain removes from domains the one to which a load should go next: see compare, with the tightest domain that
// takes it all before the roomiest. It returns how many units the domain takes; nil if none takes any.
func (l *layout) nextDomain(domains []*branch, depth int, w load) (d *branch, n int, rest []*branch) {
	var best rankedBranch
	at := -1
	for i, d := range domains {
		takes := l.unitsTaken(d, depth, w)
		if takes == 0 {
			continue
		}
		one := rankedBranch{branch: d, near: l.near(d, w.rank)}
		if takes == len(w.units) {
			one.size = [2]int{l.spread(d, depth, w, w.members) - furthest, l.slack(d, w)}
		} else {
			one.size = [2]int{-takes, l.spread(d, depth, w, takes*len(w.units[0]))}
		}
		if at < 0 || one.compare(best) < 0 {
			at, best, n = i, one, takes
		}
	}
	if at < 0 {
		return nil, 0, nil
	}
	return best.branch, n, slices.Delete(domains, at, at+1)
}

// unitsTaken bounds how many of the first units a domain takes. All units must have the same number of members.
func (l *layout) unitsTaken(d *branch, depth int, w load) int {
	if d.outside && l.tree.levels[depth].sliced() {
		return 0
	}
	if len(w.classes) == 1 {
		return min(len(w.units), l.tree.room(d, depth, w.classes[0].class)/len(w.units[0]))
	}
	room := map[int]int{}
	for _, class := range w.classes {
		room[class.class] = l.tree.slotsOf(d, class.class)
	}
	for n, unit := range w.units {
		for _, m := range unit {
			class := l.Members[m].Class
			if room[class]--; room[class] < 0 {
				return n
			}
		}
	}
	return len(w.units)
}

// placeSome places as many of the first n units in a domain as it takes, and returns the others.
func (l *layout) placeSome(ctx context.Context, d *branch, depth int, units [][]int, n int) (rest [][]int, err error) {
	if size := l.tree.unit(depth); size == 1 {
		left, err := l.lay(ctx, d, depth+1, slices.Concat(units[:n]...))
		if err != nil {
			return nil, err
		}
		for _, m := range left {
			rest = append(rest, []int{m})
		}
		return append(rest, units[n:]...), nil
	}
	if ok, err := l.put(ctx, d, depth, slices.Concat(units[:n]...)); ok || err != nil {
		return units[n:], err
	}
	for i, unit := range units[:n] {
		if ok, err := l.put(ctx, d, depth, unit); !ok || err != nil {
			return units[i:], err
		}
	}
	return units[n:], nil
}

// anywhere places a unit in one of the domains.
func (l *layout) anywhere(ctx context.Context, b *branch, depth int, unit []int) (ok bool, err error) {
	if l.tree.levels[depth].sliced() {
		return l.together(ctx, b, depth, unit)
	}
	domains, w := slices.Clone(b.inner), l.load(unit)
	l.sortDomains(domains, w, func(d *branch) [2]int { return [2]int{l.spread(d, depth, w, w.members), l.slack(d, w)} })
	for _, d := range domains {
		if l.spent() {
			return false, nil
		}
		if ok, err := l.put(ctx, d, depth, unit); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// units divides a run by rank into slices of a size.
func (l *layout) units(run []int, size int) [][]int {
	return chunks(run, func(a, b int) bool { return size > 1 && l.Members[a].Rank/size == l.Members[b].Rank/size })
}

// byClass divides a run by class, the largest first.
func (l *layout) byClass(run []int) [][]int {
	run = slices.Clone(run)
	slices.SortStableFunc(run, func(a, b int) int { return cmp.Compare(l.Members[a].Class, l.Members[b].Class) })
	return chunks(run, func(a, b int) bool { return l.Members[a].Class == l.Members[b].Class })
}

// chunks divides a list between neighbours that do not belong together.
func chunks(list []int, together func(a, b int) bool) (chunks [][]int) {
	for i, one := range list {
		if i > 0 && together(list[i-1], one) {
			chunks[len(chunks)-1] = append(chunks[len(chunks)-1], one)
		} else {
			chunks = append(chunks, []int{one})
		}
	}
	return chunks
}
