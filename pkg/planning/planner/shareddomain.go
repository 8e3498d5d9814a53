package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// startTogether reports whether several gangs that have to start must share a domain.
func startTogether(a *gangstate.Attempt) bool {
	gangs := 0
	for _, need := range a.Gangs {
		if need.Min > 0 {
			gangs++
		}
	}
	return gangs > 1 && a.Shared() != ""
}

// triedTogether returns how far gangs came that must share a domain: all of them together.
func (w *planState) triedTogether(a *gangstate.Attempt, problem placement.Problem, solved placement.Result) Tried {
	fits, missing := map[string]int{}, map[string][]int{}
	tried := Tried{Together: true}
	var members []int
	have := 0
	for i, need := range a.Gangs {
		outcome, of := solved.Gangs[i], problem.Gangs[i].Members
		have, tried.Of, members = have+need.Spec.Min-need.Min, tried.Of+need.Spec.Min, append(members, of...)
		left := unplacedFirst(outcome.Unplaced, of)
		for _, d := range outcome.Domains {
			fits[d.Value] += d.Fit
			missing[d.Value] = append(missing[d.Value], left[:min(len(left), max(0, need.Min-d.Fit))]...)
		}
		tried.Untried = max(tried.Untried, outcome.Untried)
	}
	values := slices.SortedFunc(maps.Keys(fits), func(x, y string) int {
		return cmp.Or(cmp.Compare(fits[y], fits[x]), cmp.Compare(x, y))
	})
	best := values[:min(len(values), decisions.Domains)]
	tried.Untried += len(values) - len(best)
	nodes := w.nodesByDomain(a.Shared())
	for _, value := range best {
		d := DomainTried{Value: value, Fit: have + fits[value], Short: w.short(missing[value])}
		w.usability(&d, nodes[value], members, missing[value])
		tried.Domains = append(tried.Domains, d)
	}
	return tried
}

// nodesByDomain returns the nodes with each value of a label.
func (w *planState) nodesByDomain(key string) map[string][]int {
	nodes, known := w.nodesByLabel[key]
	if known {
		return nodes
	}
	nodes = map[string][]int{}
	w.nodesByLabel[key] = nodes
	for _, d := range topology.Domains(w.tx.AllNodes(), func(node int) (string, bool) { return w.Label(node, key) }) {
		nodes[d.Value] = d.Nodes
	}
	return nodes
}

// leastTogether bounds from below what gangs that must share a domain request of each resource.
func (w *planState) leastTogether(problem placement.Problem) resource.Vector {
	least := resource.Vector{}
	for _, g := range problem.Gangs {
		amounts := map[v1.ResourceName][]int64{}
		for _, member := range g.Members {
			for name, amount := range w.classes[w.classOf[member]].Demand.Request {
				amounts[name] = append(amounts[name], amount)
			}
		}
		for name, of := range amounts {
			slices.Sort(of)
			none := len(g.Members) - len(of) // members that request none of it
			for _, amount := range of[:min(len(of), max(0, g.Min-none))] {
				least[name] = resource.Plus(least[name], amount)
			}
		}
	}
	return least
}

// mayHave returns how much of a resource a node may have: a plugin may provide one that the node does not list.
func (w *planState) mayHave(node int, name v1.ResourceName) int64 {
	if has := w.allocatable(node, name); has > 0 || isNative(name) {
		return has
	}
	return resource.MaxOfAll
}

// tooMuchTogether says of which resources gangs that must share a domain request more than any domain has; empty for
// none.
func (w *planState) tooMuchTogether(key string, problem placement.Problem) string {
	if !w.checksResources {
		return ""
	}
	least, most := w.leastTogether(problem), resource.Vector{}
	for _, nodes := range w.nodesByDomain(key) {
		has := resource.Vector{}
		for _, node := range nodes {
			for name := range least {
				has[name] = resource.Plus(has[name], w.mayHave(node, name))
			}
		}
		for name := range least {
			most[name] = max(most[name], has[name])
		}
	}
	var parts, limits []string
	for _, name := range slices.Sorted(maps.Keys(least)) {
		if 0 < most[name] && most[name] < least[name] {
			parts = append(parts, resource.Vector{name: least[name]}.String())
			limits = append(limits, resource.Vector{name: most[name]}.String())
		}
	}
	if len(parts) == 0 {
		return ""
	}
	domain := topology.ShortKey(key)
	return fmt.Sprintf("together they need %s in one %s, and no %s has more than %s",
		words.FirstOf(maxReasons, parts), domain, domain, words.FirstOf(maxReasons, limits))
}
