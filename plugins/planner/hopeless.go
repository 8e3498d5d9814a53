package planner

import (
	"fmt"
	"math"

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
)

// hopeless finds gangs that would not fit if the nodes were empty: there is not enough for
// their minimum on nodes that no filter has ruled out for good. It adds that, with the
// numbers, to the explanation of each, and reports whether there are any. That is arithmetic,
// class by class; it may take for possible what is not.
func (w *world) hopeless(a *gang.Attempt, problem placement.Problem, why map[gang.Key]string) bool {
	some := false
	for i, g := range problem.Gangs {
		if g.Min == 0 {
			continue // it runs
		}
		most, domains := w.mostEmpty(g)
		if most >= g.Min {
			continue
		}
		some = true
		if domains == 0 {
			continue // no node has the label of its topology, and that is said
		}
		need := a.Gangs[i]
		have, in := need.Spec.Min-need.Min, ""
		if g.Required != "" {
			in = " of one " + topology.ShortKey(g.Required)
		}
		why[need.Key] += fmt.Sprintf("; it would not fit even if the cluster were empty: the nodes%s have room for %d of %d members", in, have+most, need.Spec.Min)
	}
	return some
}

// mostEmpty is how many members of a gang would have a place if the nodes were empty, at
// most: in one domain, where it has to be in one. It answers the number of domains, too.
func (w *world) mostEmpty(g placement.Gang) (most, domains int) {
	count := map[int]int{}
	for _, member := range g.Members {
		count[w.classOf[member]]++
	}
	if g.Required == "" {
		return w.fitEmpty(count, w.all()), 1
	}
	nodes := map[string][]int{}
	for _, node := range w.all() {
		if value, ok := w.Label(node, g.Required); ok {
			nodes[value] = append(nodes[value], node)
		}
	}
	for _, in := range nodes {
		most = max(most, w.fitEmpty(count, in))
	}
	return most, len(nodes)
}

// all are the nodes, by index.
func (w *world) all() []int {
	nodes := make([]int, w.tx.Len())
	for i := range nodes {
		nodes[i] = i
	}
	return nodes
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
			if !w.never[slot{class, node}] && w.reaches(class, node) {
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
	return least
}
