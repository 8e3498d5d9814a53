package victim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Vector is an amount of each resource: CPU in thousandths, everything else in its
// base unit. A resource that is not in it is 0.
type Vector = resource.Vector

// Pod is a running pod.
type Pod struct {
	UID types.UID
	// Request is what its end frees on its node.
	Request Vector
	// Role is its role in the gang; empty for none.
	Role string
	// Part is the part of the gang that it belongs to; empty for none.
	Part string
	// Rank is the caller's preference among otherwise equal pods of a gang: low goes first. Surplus that lies together may
	// be useful where the same amount scattered is not.
	Rank int
	// Number is the pod's number in its gang, from 1; 0 for none. Of otherwise equal pods the highest goes first, so that
	// those that stay are numbered without gaps.
	Number int
	// DeletionCost is what its user says that its deletion costs. Of otherwise equal pods the cheapest goes first.
	DeletionCost int32
	// Created breaks ties: the youngest goes first.
	Created time.Time
	// Guards are the PodDisruptionBudgets that cover it, as indexes into [Problem.Allowed].
	Guards map[int]bool
	// Priority is the pod's own. Of two pods of a gang the lower goes first.
	Priority int32
	// Local: it runs in the domain in which capacity is sought.
	Local bool
	// Protected pods always stay: those of a priority that the preemptor may not preempt, and those that the system needs.
	// A gang that has one never goes whole.
	Protected bool
}

// Gang is a set of pods that is useful only together. A pod without a gang is one of minimum 1.
type Gang struct {
	// ID is unique among the gangs of a problem. It ends every order.
	ID string
	// Queue is for [Reclaim] and [Budget].
	Queue string
	// Priority is the gang's; low goes first.
	Priority int32
	// Created breaks ties: the youngest goes first.
	Created time.Time
	// Min is how many pods must run for the gang to be useful; 1 or more.
	Min int
	// MinByRole is how many pods of a role must run. It binds only if Min is at least its sum; otherwise the gang is
	// elastic, and any Min pods suffice.
	MinByRole map[string]int
	// MinByPart is how many pods of a part must run, if several gangs are useful only together: they are the parts of one.
	MinByPart map[string]int
	// Stays: it never goes whole.
	Stays bool
	// Pods are all running pods, in the domain and outside it, without those that are terminating.
	Pods []Pod
}

// Kind is what the loss of a bundle does to its gang.
type Kind int

// The kinds, from the harmless to the harmful.
const (
	// Safe pods are beyond the minimum, or in a gang that is broken already. Any number of them may go.
	Safe Kind = iota
	// Whole is the end of the gang: all pods go, or none.
	Whole
)

// Bundle is a set of pods of a gang that one decision is about.
type Bundle struct {
	Kind Kind
	Gang *Gang
	// Broken: the gang runs below its minimum already.
	Broken bool
	// Pods go with the bundle, in this order if not all must go. Those of a Whole bundle are all pods of the gang that are
	// not in its Safe one, including those outside the domain.
	Pods []Pod
	// Gain is how much of the need the pods in the domain cover: the sum over the needed resources of min(freed,
	// needed)/needed, from 0 to their number.
	Gain float64
	// Cost is what is lost in the same measure, not capped at the need: the sum of lost/needed. 0 for Safe bundles.
	Cost float64
	// ROI is Gain/Cost, the return on investment; for Safe bundles, which cost nothing, the Gain.
	ROI float64
	// violating: every pod of a Safe bundle, or some pod of a Whole one, violates a PodDisruptionBudget once all earlier
	// bundles have gone.
	violating bool
	// overshoots: it overshoots the share of its queue, see [Reclaim]; set by [Order.Sort].
	overshoots bool
	// part is its part of those into which [Order.Sort] divides equal bundles.
	part int
}

// Split sorts the pods of a gang in the domain into a Safe and a Whole bundle, each
// only if it has pods there.
func Split(need Vector, g *Gang) []Bundle { return split(need, g, newSpending(nil)) }

// split does what Split does, given what is spent already. It leaves spent unchanged.
func split(need Vector, g *Gang, spent *spending) []Bundle {
	var local []Pod
	protected := g.Stays
	for _, pod := range g.Pods {
		protected = protected || pod.Protected
		if pod.Local && !pod.Protected {
			local = append(local, pod)
		}
	}
	if len(local) == 0 {
		return nil
	}
	slices.SortFunc(local, func(a, b Pod) int { return comparePods(need, a, b) })
	broken := g.broken()
	safe, core := g.splitSurplus(local, broken, spent)
	spent.undo(safe...)
	var bundles []Bundle
	if len(safe) > 0 {
		bundles = append(bundles, makeBundle(need, Bundle{Kind: Safe, Gang: g, Broken: broken, Pods: safe}))
	}
	if len(core) > 0 && !protected {
		for _, pod := range g.Pods {
			if !pod.Local {
				core = append(core, pod)
			}
		}
		bundles = append(bundles, makeBundle(need, Bundle{Kind: Whole, Gang: g, Pods: core}))
	}
	return bundles
}

// broken reports whether fewer pods run than must.
func (g *Gang) broken() bool {
	if len(g.Pods) < g.Min {
		return true
	}
	for _, s := range g.surpluses() {
		for name, n := range s.byName {
			if n < 0 && name != "" {
				return true
			}
		}
	}
	return false
}

// makeBundle computes Gain, Cost and ROI of a bundle.
func makeBundle(need Vector, b Bundle) Bundle {
	local, global := Vector{}, Vector{}
	for _, pod := range b.Pods {
		global.Add(pod.Request, 1)
		if pod.Local {
			local.Add(pod.Request, 1)
		}
	}
	b.Gain = Coverage(need, local)
	if b.Kind == Safe {
		b.ROI = b.Gain
		return b
	}
	b.Cost = share(need, global)
	if b.Cost > 0 {
		b.ROI = b.Gain / b.Cost
	}
	return b
}

// Coverage returns how much of a need an amount covers: the sum over resources of min(has, needed)/needed, from 0 to
// their number.
func Coverage(need, has Vector) (sum float64) {
	for name, needed := range need {
		sum += portion(min(has[name], needed), needed)
	}
	return sum
}

// share returns Coverage without the cap at the need.
func share(need, has Vector) (sum float64) {
	for name, needed := range need {
		sum += portion(has[name], needed)
	}
	return sum
}

// portion returns has/needed; 0 if nothing is needed. It is rounded to a multiple of 2^-32: so a sum does not depend on
// the order of its terms.
func portion(has, needed int64) float64 {
	if needed <= 0 {
		return 0
	}
	return math.Round(float64(has)/float64(needed)*(1<<32)) / (1 << 32)
}

// comparePods orders pods of a gang by which goes first, among those that violate no PodDisruptionBudget and among the
// others: 1. coverage of the need, high first; 2. priority, low first; 3. rank, low first; 4. waste, little first; 5.
// deletion cost, low first; 6. number, high first; 7. age, the youngest first; 8. UID.
func comparePods(need Vector, a, b Pod) int {
	return cmp.Or(
		cmp.Compare(Coverage(need, b.Request), Coverage(need, a.Request)),
		cmp.Compare(a.Priority, b.Priority),
		cmp.Compare(a.Rank, b.Rank),
		cmp.Compare(share(need, a.Request), share(need, b.Request)),
		cmp.Compare(a.DeletionCost, b.DeletionCost),
		cmp.Compare(b.Number, a.Number),
		b.Created.Compare(a.Created),
		cmp.Compare(a.UID, b.UID),
	)
}
