package planner

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
)

// hopeless tells whether some gang would not fit if the nodes were empty: there is not enough
// for its minimum, and what it asks for beside it, on nodes that no filter has ruled out for good. That is arithmetic, class by
// class; it may take for possible what is not.
func (w *world) hopeless(problem placement.Problem) bool {
	for i, g := range problem.Gangs {
		if g.Min == 0 {
			continue // it runs
		}
		count := map[int]int{}
		for _, member := range g.Members {
			count[w.classOf[member]]++
		}
		domains := map[string][]int{}
		for _, node := range problem.Nodes {
			if g.Required == "" {
				domains[""] = append(domains[""], node)
			} else if value, ok := w.Label(node, g.Required); ok {
				domains[value] = append(domains[value], node)
			}
		}
		most := 0
		for _, nodes := range domains {
			if f := w.floors[i]; f != nil && !w.bound(f, nil, nodes, w.allocatable) {
				continue
			}
			most = max(most, w.fitEmpty(count, nodes))
		}
		if most < g.Min {
			return true
		}
	}
	return false
}

// allocatable is how much of a resource a node has.
func (w *world) allocatable(node int, name v1.ResourceName) int64 {
	has := w.tx.Node(node).GetAllocatable()
	if name == v1.ResourcePods {
		return int64(has.GetAllowedPodNumber())
	}
	return holds.Amount(has, name)
}

// fitEmpty is how many members would have a place on nodes if these were empty, at most.
func (w *world) fitEmpty(count map[int]int, nodes []int) int {
	fit := 0
	for class, want := range count {
		if w.barred[class] {
			continue
		}
		room := 0
		for _, node := range nodes {
			if room >= want {
				break
			}
			if !w.never[slot{class, node}] {
				room += w.slotsEmpty(class, node)
			}
		}
		fit += min(want, room)
	}
	return fit
}

// slotsEmpty is how many members of a class a node would take if it were empty.
func (w *world) slotsEmpty(class, node int) int {
	if !w.checksResources {
		return len(w.pods)
	}
	has := w.tx.Node(node).GetAllocatable()
	least := has.GetAllowedPodNumber()
	for name, amount := range w.classes[class].demand.Request {
		total := holds.Amount(has, name)
		if total == 0 && !isNative(name) {
			continue // some plugin may provide it
		}
		least = min(least, int(min(total/amount, math.MaxInt32)))
	}
	if w.classes[class].alone {
		least = min(least, 1)
	}
	return min(least, w.volumeSlots(class, node))
}
