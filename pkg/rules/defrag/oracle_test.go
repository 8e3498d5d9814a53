package defrag

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// oracle finds the cheapest plan by trying everything. It is slow, and too simple to be
// wrong.
type oracle struct {
	p      Problem
	at     []int // pods
	places [][]int64
	node   []int // of each member
	domain []int // of each part
	found  bool
}

// cheapest returns the cost of the cheapest plan, and the least number of moves that it has.
func cheapest(p Problem) (cost Cost, moves int, ok bool) {
	o := &oracle{p: p, at: make([]int, len(p.Pods))}
	type subset struct {
		mask uint
		cost Cost
	}
	var subsets []subset
	for mask := range uint(1) << len(p.Pods) {
		if cost, ok := o.allowed(mask); ok {
			subsets = append(subsets, subset{mask, cost})
		}
	}
	slices.SortStableFunc(subsets, func(a, b subset) int {
		return cmp.Or(a.cost.Compare(b.cost), cmp.Compare(bits.OnesCount(a.mask), bits.OnesCount(b.mask)))
	})
	for _, s := range subsets {
		if o.moves(s.mask, 0); o.found {
			return s.cost, bits.OnesCount(s.mask), true
		}
	}
	return Cost{}, 0, false
}

// allowed returns what it costs to move some pods; ok is false if a bound forbids it.
func (o *oracle) allowed(mask uint) (cost Cost, ok bool) {
	moved := make([]int, len(o.p.Groups))
	barred := false
	for i, pod := range o.p.Pods {
		if mask>>i&1 == 0 {
			continue
		}
		if pod.Group >= 0 {
			moved[pod.Group]++
		}
		for _, limit := range pod.Limits {
			barred = barred || o.p.Limits[limit] == 0
		}
	}
	groups := 0
	for i, g := range o.p.Groups {
		if moved[i] > 0 {
			groups++
		}
		if moved[i] > g.Spare {
			cost = cost.plus(g.Break)
		}
	}
	for i, pod := range o.p.Pods {
		if mask>>i&1 == 1 && (pod.Group < 0 || moved[pod.Group] <= o.p.Groups[pod.Group].Spare) {
			cost = cost.plus(pod.Cost)
		}
	}
	b, count := o.p.Budget, bits.OnesCount(mask)
	return cost, count <= b.MaxMoves && groups <= b.MaxGroups && !barred
}

// moves tries all targets of the pods that move, from pod i on.
func (o *oracle) moves(mask uint, i int) {
	if i == len(o.p.Pods) {
		free := make([][]int64, len(o.p.Nodes))
		for n, node := range o.p.Nodes {
			free[n] = slices.Clone(node.Free)
		}
		o.members(mask, free, 0, 0, 0, nowhere)
		return
	}
	from := o.p.Pods[i].Node
	o.at[i] = from
	if mask>>i&1 == 0 {
		o.moves(mask, i+1)
		return
	}
	for node := range o.p.Nodes {
		if node != from && o.p.Fits(i, node) && !o.found {
			o.at[i] = node
			o.moves(mask, i+1)
		}
	}
	o.at[i] = from
}

// members places members from the nth of a class on, each no earlier than the one before.
func (o *oracle) members(mask uint, free [][]int64, part, class, n, domain int) {
	switch {
	case o.found:
	case part == len(o.p.Want):
		o.found = o.joined() && o.fit(free) && o.order(mask, free)
	case class == len(o.p.Want[part].Classes):
		o.members(mask, free, part+1, 0, 0, nowhere)
	case domain == nowhere:
		for d := range o.p.Want[part].Domains {
			o.domain = append(o.domain[:part], d)
			o.members(mask, free, part, class, 0, d)
		}
	case n == o.p.Want[part].Classes[class].Count:
		o.members(mask, free, part, class+1, 0, domain)
	default:
		for _, node := range o.p.Want[part].Domains[domain] {
			if n > 0 && node < o.node[len(o.node)-1] || !o.p.FitsMember(part, class, node) {
				continue
			}
			request := o.p.Want[part].Classes[class].Request
			o.node, o.places = append(o.node, node), append(o.places, request)
			take(free[node], request)
			o.members(mask, free, part, class, n+1, domain)
			give(free[node], request)
			o.node, o.places = o.node[:len(o.node)-1], o.places[:len(o.places)-1]
		}
	}
}

// joined reports whether the domains of all parts of a join are in one area.
func (o *oracle) joined() bool {
	in := map[int]map[int]bool{}
	for part, domain := range o.domain {
		for _, join := range o.p.Want[part].Joins {
			if in[join.Name] == nil {
				in[join.Name] = map[int]bool{}
			}
			in[join.Name][join.Area[domain]] = true
		}
	}
	for _, areas := range in {
		if len(areas) > 1 {
			return false
		}
	}
	return true
}

// fit reports whether members have room in the end.
func (o *oracle) fit(free [][]int64) bool {
	for m, node := range o.node {
		for c, amount := range o.places[m] {
			end := free[node][c]
			for i, pod := range o.p.Pods {
				if o.at[i] != pod.Node && pod.Node == node {
					end += pod.Request[c]
				}
				if o.at[i] != pod.Node && o.at[i] == node {
					end -= pod.Request[c]
				}
			}
			if amount > 0 && end < 0 {
				return false
			}
		}
	}
	return true
}

// order reports whether the pods that are left to move can do so one after the other.
func (o *oracle) order(mask uint, free [][]int64) bool {
	if mask == 0 {
		return true
	}
	for i, pod := range o.p.Pods {
		if mask>>i&1 == 0 || !Fits(free[o.at[i]], pod.Request) {
			continue
		}
		take(free[o.at[i]], pod.Request)
		give(free[pod.Node], pod.Request)
		ok := o.order(mask&^(1<<i), free)
		give(free[o.at[i]], pod.Request)
		take(free[pod.Node], pod.Request)
		if ok {
			return true
		}
	}
	return false
}

// TestBestAgainstOracle compares plans on small random clusters with all possible ones.
func TestBestAgainstOracle(t *testing.T) {
	const cases = 2000
	solvable, moving, best, none, proven, orders := 0, 0, 0, 0, 0, rand.New(rand.NewPCG(5, 5))
	for seed := range uint64(cases) {
		p := random(rand.New(rand.NewPCG(seed, 1)))
		r, err := CheapestMoves(p)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		cost, moves, ok := cheapest(p)
		switch {
		case ok && !r.Found && r.Exhaustive:
			t.Errorf("seed %d: nothing found, and said to be all; there is a plan of cost %v", seed, cost)
		case !ok && r.Found:
			t.Errorf("seed %d: a plan where there is none: %+v", seed, r.Plan)
		case !ok:
			none++
			if r.Exhaustive {
				proven++
			}
			continue
		}
		solvable++
		if moves > 0 {
			moving++
		}
		if !r.Found {
			continue
		}
		if r.Plan.Cost == cost && len(r.Plan.Moves) == moves {
			best++
		} else if r.Exhaustive || r.Plan.Cost.Compare(cost) < 0 {
			t.Errorf("seed %d: costs %v with %d moves, and said to be best; there is %v with %d", seed, r.Plan.Cost, len(r.Plan.Moves), cost, moves)
		}
		holds(t, p, r.Plan, orders)
	}
	share := 100 * float64(best) / float64(solvable)
	t.Logf("of %d problems %d have a plan, %d of them with moves; %.2f%% of the plans are the best; of %d that have none %d are proven", cases, solvable, moving, share, none, proven)
	if share < 99 || solvable < cases/5 || moving < cases/10 {
		t.Errorf("%.2f%% of the plans are the best, want 99%%", share)
	}
}

// holds checks what holds for any plan of Best.
func holds(t *testing.T, p Problem, plan Plan, r *rand.Rand) {
	t.Helper()
	if err := p.check(plan); err != nil {
		t.Errorf("%v: %+v", err, plan)
	}
	for i := range plan.Moves {
		if o := without(p, plan, i); o.stands() {
			t.Errorf("move %d may be left out of %+v", i, plan)
		}
	}
	runs(t, p, plan, r)
}

// without returns an oracle for a plan without one of its moves.
func without(p Problem, plan Plan, move int) *oracle {
	o := &oracle{p: p}
	for _, pod := range p.Pods {
		o.at = append(o.at, pod.Node)
	}
	for i, m := range plan.Moves {
		if i != move {
			o.at[m.Pod] = m.To
		}
	}
	p.eachMember(plan.Places, func(node int, request []int64) {
		o.node, o.places = append(o.node, node), append(o.places, request)
	})
	return o
}

// stands reports whether the present places of pods and members are a plan.
func (o *oracle) stands() bool {
	var mask uint
	for i, pod := range o.p.Pods {
		if o.at[i] != pod.Node {
			mask |= 1 << i
		}
	}
	free := make([][]int64, len(o.p.Nodes))
	for n, node := range o.p.Nodes {
		free[n] = slices.Clone(node.Free)
	}
	for m, node := range o.node {
		take(free[node], o.places[m])
	}
	_, allowed := o.allowed(mask)
	return allowed && o.fit(free) && o.order(mask, free)
}

// runs makes the moves of a plan in a random order that respects After, several at a time, of those that share a limit
// no more than it allows.
func runs(t *testing.T, p Problem, plan Plan, r *rand.Rand) {
	t.Helper()
	free, gone := p.free(plan.Places), make([]int, len(p.Limits))
	begun, ended := make([]bool, len(plan.Moves)), make([]bool, len(plan.Moves))
	for left := 2 * len(plan.Moves); left > 0; {
		i := r.IntN(len(plan.Moves))
		m := plan.Moves[i]
		request := p.Pods[m.Pod].Request
		ready := !slices.ContainsFunc(m.After, func(j int) bool { return !ended[j] })
		switch {
		case begun[i] && !ended[i]:
			ended[i] = true
			for _, limit := range p.Pods[m.Pod].Limits {
				gone[limit]--
			}
			give(free[p.Pods[m.Pod].Node], request)
			left--
		case !begun[i] && ready:
			if !Fits(free[m.To], request) {
				t.Errorf("move %d has no room at its turn: %+v", i, plan)
				return
			}
			begun[i] = true
			for _, limit := range p.Pods[m.Pod].Limits {
				if gone[limit]++; gone[limit] > p.Limits[limit] {
					t.Errorf("%d pods of limit %d are gone at a time, of %d: %+v", gone[limit], limit, p.Limits[limit], plan)
				}
			}
			take(free[m.To], request)
			left--
		}
	}
}
