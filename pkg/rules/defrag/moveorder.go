package defrag

import "slices"

// mostOrders bounds how often one search for an order has to choose.
const mostOrders = 2000

// sequence is a search for an order of moves in which each has room at its turn. Nodes
// are renumbered: only those that receive pods count.
type sequence struct {
	request  [][]int64
	from, to []int     // of each move; from is nowhere if no pod goes to that node
	free     [][]int64 // now
	due      [][]int64 // what is still to come
	done     []bool
	order    []int
	// dead are sets of moves from which no order leads on, if there are few moves.
	dead   map[uint64]bool
	effort int
}

// sequenced orders moves so that each has room at its turn. If ok is false there is no such order,
// unless it gave up. places are those of members.
func (p *Problem) sequenced(places [][][]int, moves []Move) (order []Move, ok, gaveUp bool) {
	q := &sequence{effort: mostOrders, dead: map[uint64]bool{}, done: make([]bool, len(moves))}
	at := map[int]int{}
	for _, m := range moves {
		if _, ok := at[m.To]; !ok {
			at[m.To] = len(q.free)
			q.free = append(q.free, slices.Clone(p.Nodes[m.To].Free))
			q.due = append(q.due, make([]int64, p.columns()))
		}
	}
	p.eachMember(places, func(node int, request []int64) {
		if i, ok := at[node]; ok {
			take(q.free[i], request)
		}
	})
	for _, m := range moves {
		pod := p.Pods[m.Pod]
		from, ok := at[pod.Node]
		if !ok {
			from = nowhere
		}
		q.request, q.from, q.to = append(q.request, pod.Request), append(q.from, from), append(q.to, at[m.To])
		give(q.due[at[m.To]], pod.Request)
	}
	if !q.solve() {
		return nil, false, q.effort <= 0
	}
	order = make([]Move, 0, len(moves))
	for _, i := range q.order {
		order = append(order, Move{Pod: moves[i].Pod, To: moves[i].To})
	}
	return order, true, false
}

// eachMember calls visit for every member that has a place.
func (p *Problem) eachMember(places [][][]int, visit func(node int, request []int64)) {
	for part, classes := range places {
		for class, nodes := range classes {
			for _, node := range nodes {
				visit(node, p.Want[part].Classes[class].Request)
			}
		}
	}
}

// solve makes the moves that are left. Harmless moves come first, and are never taken back: their
// targets have room for all that is still to come. It tries the others one after the other.
func (q *sequence) solve() bool {
	mark := len(q.order)
	for q.harmless() {
	}
	if len(q.order) == len(q.request) {
		return true
	}
	key, small := q.key()
	if !small || !q.dead[key] {
		for i := range q.request {
			if q.done[i] || !Fits(q.free[q.to[i]], q.request[i]) {
				continue
			}
			if q.effort--; q.effort <= 0 {
				break
			}
			q.make(i)
			if q.solve() {
				return true
			}
			q.unmake()
		}
		if small {
			q.dead[key] = true
		}
	}
	for len(q.order) > mark {
		q.unmake()
	}
	return false
}

// harmless makes moves that take no room from others, and reports whether there were any.
func (q *sequence) harmless() bool {
	found := false
	for i := range q.request {
		to := q.to[i]
		if q.done[i] || !Fits(q.free[to], q.request[i]) || !Fits(q.free[to], q.due[to]) {
			continue
		}
		q.make(i)
		found = true
	}
	return found
}

// key returns which moves are done; ok is false if there are too many for a key.
func (q *sequence) key() (key uint64, ok bool) {
	if len(q.done) > 64 {
		return 0, false
	}
	for i, done := range q.done {
		if done {
			key |= 1 << i
		}
	}
	return key, true
}

func (q *sequence) make(i int) {
	q.done[i] = true
	q.order = append(q.order, i)
	take(q.free[q.to[i]], q.request[i])
	take(q.due[q.to[i]], q.request[i])
	if q.from[i] != nowhere {
		give(q.free[q.from[i]], q.request[i])
	}
}

// unmake takes back the last move.
func (q *sequence) unmake() {
	i := q.order[len(q.order)-1]
	q.order = q.order[:len(q.order)-1]
	q.done[i] = false
	give(q.free[q.to[i]], q.request[i])
	give(q.due[q.to[i]], q.request[i])
	if q.from[i] != nowhere {
		take(q.free[q.from[i]], q.request[i])
	}
}

// linked sets After of each of the moves, which are in order. A move comes after as few of the moves that leave its
// target as it can do with; moves that come to the target earlier count as done. Of the moves that share a limit of n,
// each comes after the n-th before it, so that no more than n are under way at a time.
func (p *Problem) linked(places [][][]int, moves []Move) []Move {
	moves = slices.Clone(moves)
	into, outOf := map[int][]int{}, map[int][]int{} // earlier moves by node
	sharing := map[int][]int{}                      // earlier moves by limit
	free := p.free(places)
	for i := range moves {
		m := &moves[i]
		pod := p.Pods[m.Pod]
		here := slices.Clone(free[m.To])
		for _, j := range into[m.To] {
			take(here, p.Pods[moves[j].Pod].Request)
		}
		m.After = nil
		if !Fits(here, pod.Request) {
			m.After = p.needed(moves, here, pod.Request, outOf[m.To])
		}
		for _, limit := range pod.Limits {
			if before := turn(sharing[limit], p.Limits[limit]); before >= 0 && !closure(moves, m.After)[before] {
				m.After = append(m.After, before)
			}
			sharing[limit] = append(sharing[limit], i)
		}
		slices.Sort(m.After)
		into[m.To], outOf[pod.Node] = append(into[m.To], i), append(outOf[pod.Node], i)
	}
	return moves
}

// turn returns the move that has to end before the next one of those that share a limit begins; negative for none.
func turn(earlier []int, atATime int) int {
	if len(earlier) < atATime {
		return nowhere
	}
	return earlier[len(earlier)-atATime]
}

// needed drops the moves that a request has room without.
func (p *Problem) needed(moves []Move, free, request []int64, after []int) []int {
	after = slices.Clone(after)
	for k := 0; k < len(after); {
		without := slices.Delete(slices.Clone(after), k, k+1)
		here := slices.Clone(free)
		for j := range closure(moves, without) {
			if p.Pods[moves[j].Pod].Node == p.Pods[moves[after[k]].Pod].Node {
				give(here, p.Pods[moves[j].Pod].Request)
			}
		}
		if Fits(here, request) {
			after = without
		} else {
			k++
		}
	}
	return after
}

// closure returns some moves, and all moves that they are after.
func closure(moves []Move, some []int) map[int]bool {
	all, queue := map[int]bool{}, slices.Clone(some)
	for len(queue) > 0 {
		j := queue[0]
		queue = queue[1:]
		if !all[j] {
			all[j] = true
			queue = append(queue, moves[j].After...)
		}
	}
	return all
}
