package defrag

import (
	"fmt"
	"slices"
)

// mostDeadEnds bounds how often a unit's pods are tried on other targets.
const mostDeadEnds = 200

// Clearing is what EmptyUnits empties.
type Clearing struct {
	// Units are nodes that are emptied together, a node or a domain each, in the order in
	// which to try them. No node is in two.
	Units [][]int
	// Targets are the nodes that may receive pods, in the order in which to try them. They may be
	// of units, too: a unit is emptied or receives pods, whichever comes first.
	Targets []int
	// MaxUnits bounds how many units are emptied.
	MaxUnits int
}

// EmptyUnits empties units one by one, each wholly or not at all: bigger pods first, each onto the first
// target that has room. Units without pods, or whose pods have no place, are skipped. The problem's
// Want is ignored.
func EmptyUnits(p Problem, c Clearing) (Plan, error) {
	p.Want = nil
	if err := p.validate(); err != nil {
		return Plan{}, fmt.Errorf("reading the problem: %w", err)
	}
	e := &emptying{
		search: newSearch(&p), Clearing: c,
		cleared: make([]bool, len(p.Nodes)), received: make([]int, len(p.Nodes)),
	}
	var plan Plan
	for i, unit := range c.Units {
		if len(plan.Cleared) == c.MaxUnits {
			break
		}
		if e.empty(unit) {
			plan.Cleared = append(plan.Cleared, i)
		}
	}
	for _, pod := range e.out {
		plan.Moves = append(plan.Moves, Move{Pod: pod, To: e.to[pod]})
	}
	plan.Moves = p.linked(nil, plan.Moves)
	plan.Cost = p.cost(plan.Moves)
	if err := checkClear(p, c, plan); err != nil {
		return Plan{}, fmt.Errorf("checking the plan that was found: %w", err)
	}
	return plan, nil
}

// emptying is a search that empties units.
type emptying struct {
	*search
	Clearing
	cleared  []bool // nodes
	received []int  // pods, by node
	deadEnds int
}

// empty moves all pods off a unit, or none.
func (e *emptying) empty(unit []int) bool {
	mark := len(e.out)
	var pods []int
	for _, node := range unit {
		if e.received[node] > 0 {
			return false
		}
		pods = append(pods, e.on[node]...)
	}
	slices.SortFunc(pods, e.bigger)
	for _, pod := range pods {
		if !e.push(pod) {
			e.pullTo(mark)
			return false
		}
	}
	e.mark(unit, true)
	e.deadEnds = mostDeadEnds
	if len(pods) > 0 && e.assign(pods, 0) {
		return true
	}
	e.mark(unit, false)
	e.pullTo(mark)
	return false
}

func (e *emptying) mark(unit []int, cleared bool) {
	for _, node := range unit {
		e.cleared[node] = cleared
	}
}

// assign finds targets for pods; for the first of them it tries Targets from index from on.
func (e *emptying) assign(pods []int, from int) bool {
	if len(pods) == 0 {
		return true
	}
	it := e.itemOf(pods[0])
	for i := from; i < len(e.Targets); i++ {
		node := e.Targets[i]
		if e.cleared[node] || !Fits(e.at(node), it.request) || !e.may(it, node) {
			continue
		}
		next := 0
		if len(pods) > 1 && e.alike(pods[0], pods[1]) {
			next = i // targets without room for this pod have none for the next
		}
		c := choice{node: node}
		e.apply(it, c)
		e.received[node]++
		if e.assign(pods[1:], next) {
			return true
		}
		e.received[node]--
		e.undo(it, c)
		if e.deadEnds <= 0 {
			return false
		}
	}
	e.deadEnds--
	return false
}

// checkClear reports why a plan of EmptyUnits must not be carried out.
func checkClear(p Problem, c Clearing, plan Plan) error {
	p.Want = nil
	if err := p.check(plan); err != nil {
		return err
	}
	if len(plan.Cleared) > c.MaxUnits {
		return fmt.Errorf("%d units are cleared, at most %d may be", len(plan.Cleared), c.MaxUnits)
	}
	cleared := map[int]bool{}
	for i, unit := range plan.Cleared {
		if unit < 0 || unit >= len(c.Units) || slices.Contains(plan.Cleared[:i], unit) {
			return fmt.Errorf("unit %d is cleared twice, or is none", unit)
		}
		for _, node := range c.Units[unit] {
			cleared[node] = true
		}
	}
	leaves := map[int]bool{}
	for i, m := range plan.Moves {
		leaves[m.Pod] = true
		if !slices.Contains(c.Targets, m.To) || cleared[m.To] {
			return fmt.Errorf("move %d goes to node %d, which is no target or is cleared", i, m.To)
		}
		if !cleared[p.Pods[m.Pod].Node] {
			return fmt.Errorf("move %d leaves node %d, which is not cleared", i, p.Pods[m.Pod].Node)
		}
	}
	for i, pod := range p.Pods {
		if cleared[pod.Node] && !leaves[i] {
			return fmt.Errorf("pod %d is left on node %d, which is said to be cleared", i, pod.Node)
		}
	}
	return nil
}
