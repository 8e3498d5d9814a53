package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
)

// refusal words why a plugin refuses an attempt as a whole.
func (w *world) refusal(a *gang.Attempt, message string) map[gang.Key]string {
	why := map[gang.Key]string{}
	for _, need := range a.Gangs {
		if need.Min > 0 {
			why[need.Key] = fmt.Sprintf("gang %q cannot fit: %s", need.Key, message)
		}
	}
	return why
}

// explain words, gang by gang, how far an attempt came and what it lacked.
func (w *world) explain(a *gang.Attempt, problem placement.Problem, solved placement.Result) map[gang.Key]string {
	why := map[gang.Key]string{}
	for i, need := range a.Gangs {
		if need.Min == 0 && !solved.Gangs[i].FloorShort {
			continue // it runs, or has all it needs
		}
		outcome := solved.Gangs[i]
		if outcome.Fit >= need.Min && outcome.FloorShort {
			why[need.Key] = w.explainFloor(need, w.floors[i])
			continue
		}
		if outcome.Fit >= need.Min && len(a.Gangs) > 1 {
			why[need.Key] = fmt.Sprintf("gang %q fits, but not together with the other gangs of its group", need.Key)
			continue
		}
		if need.Spec.RequiredTopology != "" {
			why[need.Key] = w.explainDomains(need, problem.Gangs[i], outcome)
			continue
		}
		have := need.Spec.Min - need.Min
		why[need.Key] = fmt.Sprintf("gang %q: %d of %d members fit%s%s%s%s", need.Key, have+outcome.Fit, need.Spec.Min, forStage(need), inSlices(need), w.short(outcome.Unplaced), w.reasons())
	}
	return why
}

// rejects reports whether a minimum needs members for which plugins reject every node, whatever it has: more nodes would
// not help.
func (w *world) rejects(a *gang.Attempt) bool {
	member := 0
	for _, need := range a.Gangs {
		left := 0
		for _, pod := range need.Pending {
			if w.rejected[w.classOf[member]] == "" && !w.deniedPods[pod.UID] {
				left++
			}
			member++
		}
		if left < need.Min {
			return true
		}
	}
	return false
}

// explained is how many domains an explanation names.
const explained = 8

func (w *world) explainDomains(need gang.Need, g placement.Gang, outcome placement.Outcome) string {
	have, of, key := need.Spec.Min-need.Min, need.Spec.Min, need.Spec.RequiredTopology
	if len(outcome.Domains) == 0 {
		return fmt.Sprintf("gang %q: no node has the label %s, which it requires as its topology", need.Key, key)
	}
	var parts []string
	told := outcome.Domains[:min(len(outcome.Domains), explained)]
	for _, d := range told {
		missing := g.Members[:min(len(g.Members), max(0, need.Min-d.Fit))]
		parts = append(parts, fmt.Sprintf("%s %s: %d of %d members fit%s", topology.ShortKey(key), d.Value, have+d.Fit, of, w.short(missing)))
	}
	if more := len(outcome.Domains) - len(told) + outcome.Untried; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more, none with more room", more))
	}
	text := fmt.Sprintf("gang %q does not fit%s%s in any %s: %s%s", need.Key, forStage(need), inSlices(need), topology.ShortKey(key), strings.Join(parts, "; "), w.reasons())
	if isScattered(need, outcome) {
		// Autoscalers try pods one by one, and see that each fits.
		domain := topology.ShortKey(key)
		text += fmt.Sprintf("; several %ss together have room for it, and then no autoscaler adds nodes by itself: add some to one %s, or prefer the topology", domain, domain)
	}
	return text
}

// scattered returns the gangs that only their required topology keeps waiting, with its label key. It returns none of
// gangs that have to be in one domain together: room for one of them alone is of no use.
func scattered(a *gang.Attempt, solved placement.Result) map[gang.Key]string {
	if len(a.Gangs) > 1 && a.Shared() != "" {
		return nil
	}
	topologies := map[gang.Key]string{}
	for i, need := range a.Gangs {
		if isScattered(need, solved.Gangs[i]) {
			topologies[need.Key] = need.Spec.RequiredTopology
		}
	}
	return topologies
}

// isScattered reports whether no domain of the topology that a gang requires has room for it, but several together do.
func isScattered(need gang.Need, outcome placement.Outcome) bool {
	fit := 0
	for _, d := range outcome.Domains {
		fit += d.Fit
	}
	return need.Spec.RequiredTopology != "" && outcome.Fit < need.Min && fit >= need.Min
}

// forStage words which of the stages of a gang its minimum is for.
func forStage(need gang.Need) string { return gang.TextStage(need.Spec.Stage()) }

// inSlices words in which slices the members of a gang have to be.
func inSlices(need gang.Need) string {
	var parts []string
	for _, level := range need.Spec.Layout.Levels {
		if level.Slice > 0 {
			parts = append(parts, fmt.Sprintf("%d to a %s", level.Slice, topology.ShortKey(level.Key)))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return " in slices of " + strings.Join(parts, " and ")
}

// short sums up what members without a place ask of the resources and devices that nodes
// lacked.
func (w *world) short(members []int) string {
	sum := resource.Vector{}
	for _, m := range members {
		for name, amount := range w.classes[w.classOf[m]].demand.Request {
			if w.lacks(name) {
				sum.Add(resource.Vector{name: amount}, 1)
			}
		}
	}
	var parts []string
	if !sum.Zero() {
		parts = append(parts, sum.String())
	}
	if parts = append(parts, w.shortDevices(members)...); len(parts) == 0 {
		return ""
	}
	return "; short " + strings.Join(parts, ", ")
}

// reasons lists why nodes refused members, the most frequent first.
func (w *world) reasons() string {
	if len(w.rejected) > 0 {
		class := slices.Min(slices.Collect(maps.Keys(w.rejected)))
		return ": " + w.rejected[class]
	}
	if w.denied != "" {
		return ": " + w.denied
	}
	list := slices.Collect(maps.Keys(w.refused))
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(w.refused[b]), len(w.refused[a])), cmp.Compare(a, b))
	})
	parts := make([]string, len(list))
	for i, reason := range list {
		parts[i] = fmt.Sprintf("%d %s", len(w.refused[reason]), reason)
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf(" (of %d nodes: %s)", w.tx.Len(), strings.Join(parts, ", "))
}
