package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// refuseAll returns, for each gang with a minimum, that a plugin refuses the attempt as a whole.
func refuseAll(a *gangstate.Attempt, message string) map[gangspec.Key]string {
	why := map[gangspec.Key]string{}
	for _, need := range a.Gangs {
		if need.Min > 0 {
			why[need.Key] = fmt.Sprintf("gang %q cannot fit: %s", need.Key, message)
		}
	}
	return why
}

// explain returns, by gang, how far an attempt came and what it lacked.
func (w *planState) explain(a *gangstate.Attempt, tried []Tried, solved placement.Result) map[gangspec.Key]string {
	why := map[gangspec.Key]string{}
	var lacking []string
	for i, need := range a.Gangs {
		if solved.Gangs[i].Fit < need.Min {
			lacking = append(lacking, fmt.Sprintf("gang %q", need.Key))
		}
	}
	for i, need := range a.Gangs {
		if need.Min == 0 && !solved.Gangs[i].LacksExtra {
			continue // it runs
		}
		outcome := solved.Gangs[i]
		if outcome.Fit >= need.Min && outcome.LacksExtra {
			why[need.Key] = w.explainMinResources(need, w.minResources[i])
			continue
		}
		if outcome.Fit >= need.Min && len(a.Gangs) > 1 && !tried[i].Together {
			why[need.Key] = fmt.Sprintf("gang %q fits, but not together with %s of its group", need.Key,
				cmp.Or(words.FirstOf(maxDomains, lacking), "the other gangs"))
			continue
		}
		if need.Spec.RequiredTopology != "" {
			why[need.Key] = w.explainDomains(need, tried[i], outcome)
			continue
		}
		all := tried[i].Domains[0]
		why[need.Key] = fmt.Sprintf("gang %q: %d of %d members fit%s%s%s%s", need.Key, all.Fit, need.Spec.Min,
			forStage(need), inSlices(need), all.Short.text(), w.textReasons())
	}
	return why
}

// Tried is how far a gang of an attempt came.
type Tried struct {
	// Domains are the best of its required topology, best first; of a gang that requires none the only one, without a
	// value, is the whole cluster.
	Domains []DomainTried
	// Untried is how many further domains there are.
	Untried int
	// Of is of how many members fits are counted. Together: of all gangs of its group, which must share a domain.
	Of       int
	Together bool
}

// DomainTried is how far a gang came in a domain.
type DomainTried struct {
	Value string
	// Fit is how many of the members of its minimum fit, with those that are bound.
	Fit int
	// Short is what the others request of what usable nodes lacked; nothing if no node is usable.
	Short Shortage
	decisions.Usability
}

// text returns what an explanation says of a domain beside its name.
func (d *DomainTried) text(of int) string {
	text := fmt.Sprintf("%d of %d members fit%s", d.Fit, of, d.Short.text())
	switch {
	case len(d.Unusable) == 0:
		return text
	case d.Usable() == 0:
		return text + ", no node is usable"
	}
	return text + "; " + words.FirstOf(maxDomains, decisions.TextUnusable(d.Unusable))
}

// Shortage is what members request of the resources that nodes lacked, and of the devices, by device class.
type Shortage struct {
	Resources resource.Vector
	Devices   map[string]int64
}

// text returns what an explanation says of a shortage; empty for none.
func (s Shortage) text() string {
	var parts []string
	if !s.Resources.Zero() {
		parts = append(parts, s.Resources.String())
	}
	for _, class := range slices.Sorted(maps.Keys(s.Devices)) {
		parts = append(parts, fmt.Sprintf("%d of device class %s", s.Devices[class], class))
	}
	if len(parts) == 0 {
		return ""
	}
	return "; short " + strings.Join(parts, ", ")
}

// tried returns how far each gang of an attempt came.
func (w *planState) tried(a *gangstate.Attempt, problem placement.Problem, solved placement.Result) []Tried {
	all := make([]Tried, len(a.Gangs))
	if startTogether(a) {
		return slices.Repeat([]Tried{w.triedTogether(a, problem, solved)}, len(all))
	}
	for i, need := range a.Gangs {
		all[i].Of = need.Spec.Min
		have, outcome, members := need.Spec.Min-need.Min, solved.Gangs[i], problem.Gangs[i].Members
		if need.Spec.RequiredTopology == "" {
			d := DomainTried{Fit: have + outcome.Fit, Short: w.short(outcome.Unplaced)}
			w.usability(&d, w.tx.AllNodes(), members, outcome.Unplaced)
			all[i].Domains = []DomainTried{d}
			continue
		}
		best := outcome.Domains[:min(len(outcome.Domains), decisions.Domains)]
		all[i].Untried = outcome.Untried + len(outcome.Domains) - len(best)
		nodes := w.nodesByDomain(need.Spec.RequiredTopology)
		left := unplacedFirst(outcome.Unplaced, members)
		for _, d := range best {
			missing := left[:min(len(left), max(0, need.Min-d.Fit))]
			tried := DomainTried{Value: d.Value, Fit: have + d.Fit, Short: w.short(missing)}
			w.usability(&tried, nodes[d.Value], members, missing)
			all[i].Domains = append(all[i].Domains, tried)
		}
	}
	return all
}

// unplacedFirst returns the members of a gang, those first that have no place in its best domain.
func unplacedFirst(unplaced, members []int) []int {
	first := sets.New(unplaced...)
	return append(slices.Clip(unplaced), slices.DeleteFunc(slices.Clone(members), first.Has)...)
}

// ReservationPlugin is the name of the plugin that keeps pods waiting for the Reservations that they name or own.
const ReservationPlugin = "Reservation"

// rejection returns why plugins reject members that the minimum needs: the reason that fits the words of the
// explanation. Empty if the minimum needs none of those.
func (w *planState) rejection(a *gangstate.Attempt) string {
	switch c := w.firstRejected(); {
	case !w.needsRejected(a):
		return ""
	case c != nil && c.rejectedBy == ReservationPlugin:
		return v1alpha1.ReasonAwaitingReservation
	default:
		return v1alpha1.ReasonMemberRejected
	}
}

// firstRejected returns the first class that plugins rejected; nil for none.
func (w *planState) firstRejected() *class {
	if i := slices.IndexFunc(w.classes, (*class).isRejected); i >= 0 {
		return w.classes[i]
	}
	return nil
}

// needsRejected reports whether a minimum needs members for which plugins reject every node, whatever its capacity:
// more nodes would not help.
func (w *planState) needsRejected(a *gangstate.Attempt) bool {
	member := 0
	for _, need := range a.Gangs {
		left := 0
		for _, pod := range need.Pending {
			if w.classes[w.classOf[member]].rejected == "" && !w.notAdmittedPods[pod.UID] {
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

// maxDomains is how many domains, or gangs, an explanation names.
const maxDomains = 8

// maxReasons is how many reasons of nodes an explanation gives: each may name another taint.
const maxReasons = 8

func (w *planState) explainDomains(need gangstate.Need, tried Tried, outcome placement.Outcome) string {
	key := need.Spec.RequiredTopology
	if len(tried.Domains) == 0 {
		return fmt.Sprintf("gang %q: no node has the label %s, which it requires as its topology", need.Key, key)
	}
	var parts []string
	told := tried.Domains[:min(len(tried.Domains), maxDomains)]
	for _, d := range told {
		parts = append(parts, fmt.Sprintf("%s %s: %s", topology.ShortKey(key), d.Value, d.text(tried.Of)))
	}
	if more := len(tried.Domains) - len(told) + tried.Untried; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more, none with more room", more))
	}
	together := ""
	if tried.Together {
		together = " together with its group"
	}
	text := fmt.Sprintf("gang %q does not fit%s%s%s in any %s: %s%s", need.Key, together, forStage(need), inSlices(need),
		topology.ShortKey(key), strings.Join(parts, "; "), w.textReasons())
	if !tried.Together && isScattered(need, outcome) {
		// Autoscalers simulate pods one by one, and find that each fits.
		domain := topology.ShortKey(key)
		text += fmt.Sprintf("; several %ss together have room for it, but autoscalers try pods one by one and add no nodes: "+
			"add some to one %s, or make the topology a preferred one", domain, domain)
	}
	return text
}

// scattered returns the gangs that wait only for their required topology, with its label key. It returns none of gangs
// that must share a domain: capacity for one of them is useless.
func scattered(a *gangstate.Attempt, solved placement.Result) map[gangspec.Key]string {
	if len(a.Gangs) > 1 && a.Shared() != "" {
		return nil
	}
	topologies := map[gangspec.Key]string{}
	for i, need := range a.Gangs {
		if isScattered(need, solved.Gangs[i]) {
			topologies[need.Key] = need.Spec.RequiredTopology
		}
	}
	return topologies
}

// isScattered reports whether no single domain of a gang's required topology has room for it, but several together do.
func isScattered(need gangstate.Need, outcome placement.Outcome) bool {
	fit := 0
	for _, d := range outcome.Domains {
		fit += d.Fit
	}
	return need.Spec.RequiredTopology != "" && outcome.Fit < need.Min && fit >= need.Min
}

// forStage returns text for the stage that a gang's minimum belongs to.
func forStage(need gangstate.Need) string { return gangstate.TextStage(need.Spec.Stage()) }

// inSlices returns text for the slices that a gang's layout requires.
func inSlices(need gangstate.Need) string {
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

// short returns what unplaced members request of the resources and devices that nodes lacked.
func (w *planState) short(members []int) Shortage {
	s := Shortage{Resources: resource.Vector{}, Devices: w.shortDevices(members)}
	if w.lacking[v1.ResourcePods] && len(members) > 0 {
		s.Resources[v1.ResourcePods] = int64(len(members))
	}
	for _, m := range members {
		for name, amount := range w.classes[w.classOf[m]].Demand.Request {
			if w.lacks(name) {
				s.Resources[name] = resource.Plus(s.Resources[name], amount)
			}
		}
	}
	return s
}

// refusals counts the nodes that refused members, by reason.
func (w *planState) refusals() map[string]int {
	counts := make(map[string]int, len(w.refused))
	for reason, nodes := range w.refused {
		counts[reason] = len(nodes)
	}
	return counts
}

// textReasons lists why nodes refused members, the most frequent reason first.
func (w *planState) textReasons() string {
	if c := w.firstRejected(); c != nil {
		return ": " + c.rejected
	}
	if w.notAdmitted != "" {
		return ": " + w.notAdmitted
	}
	list := slices.Collect(maps.Keys(w.refused))
	slices.SortFunc(list, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(w.refused[b]), len(w.refused[a])), cmp.Compare(a, b))
	})
	if len(list) == 0 {
		return ""
	}
	for i, reason := range list {
		list[i] = fmt.Sprintf("%d %s", len(w.refused[reason]), reason)
	}
	return fmt.Sprintf(" (of %d nodes: %s)", w.tx.Len(), words.FirstOf(maxReasons, list))
}
