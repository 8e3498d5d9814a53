package defragmentation

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// anyProfile returns the first of the profiles: units are emptied for no profile in particular.
func (pl *Defragmentation) anyProfile() framework.Framework {
	return pl.scheduler.Profiles[sortedKeys(pl.scheduler.Profiles)[0]]
}

// planEmptying seeks moves that empty units, all of them. Without any it returns why.
func (r *round) planEmptying(ctx context.Context, plan *v1alpha1.DefragmentationPlan, maxMoves,
	maxGangs int) (found *proposal, why string, err error) {
	goal := plan.Spec.Goal.Empty
	d := r.demandForUnits(plan.UID, plan.Spec.Goal, maxMoves, maxGangs)
	return r.withSimulation(ctx, d, func(p *problem) (*proposal, string, error) {
		p.clearing()
		byName := p.unitsOf(cmp.Or(goal.Unit, v1.LabelHostname))
		var units [][]int
		for _, name := range goal.Names {
			unit, there := byName[name]
			if !there {
				return nil, fmt.Sprintf("no node has the label %s=%s", cmp.Or(goal.Unit, v1.LabelHostname), name), nil
			}
			units = append(units, unit)
		}
		p.leaveOut(goal.Resource)
		may := p.movable()
		for i, unit := range units {
			if stays := r.staying(d, p, may, unit, goal.Resource); len(stays) > 0 {
				return nil, fmt.Sprintf("%s cannot be emptied: %d pods on it may not be moved: %s", goal.Names[i],
					len(stays), words.FirstOf(3, stays)), nil
			}
		}
		p.units = units
		on := p.byNode()
		return r.seek(ctx, d, p, func() (*defrag.Plan, string, error) {
			cleared, err := defrag.EmptyUnits(p.Problem, defrag.Clearing{Units: units,
				Targets: r.targets(p, units, goal.Resource), MaxUnits: len(units)})
			if err != nil {
				return nil, "", err
			}
			for i, unit := range units {
				if n := len(p.podsOn(on, unit)); n > 0 && !slices.Contains(cleared.Cleared, i) {
					return nil,
						fmt.Sprintf("%s cannot be emptied: its %d pods have no place elsewhere within %d moves and %d gangs in all",
							goal.Names[i], n, d.maxMoves, d.maxGangs), nil
				}
			}
			return &cleared, "", nil
		})
	})
}

// emptyUnderused seeks moves that empty units whose use is below lowThresholds, as many of them as possible.
func (r *round) emptyUnderused(ctx context.Context) (d *demand, found *proposal, why string, err error) {
	goal := v1alpha1.DefragmentationGoal{Empty: &v1alpha1.EmptyUnits{Unit: r.args.Unit, Resource: r.args.ResourceType}}
	d = r.demandForUnits("little", goal, int(*r.args.MaxMoves), int(*r.args.MaxGangs))
	found, why, err = r.withSimulation(ctx, d, func(p *problem) (*proposal, string, error) {
		p.clearing()
		p.leaveOut(r.args.ResourceType)
		byName, may, on := p.unitsOf(r.args.Unit), p.movable(), p.byNode()
		var low []string
		for _, name := range sortedKeys(byName) {
			if unit := byName[name]; r.isLittle(d, p, unit) &&
				len(r.staying(d, p, may, unit, r.args.ResourceType)) == 0 && r.isWorth(p, on, unit) {
				low = append(low, name)
			}
		}
		if len(low) == 0 || len(low) < r.args.NumberOfNodes {
			return nil,
				fmt.Sprintf("%d units of %s are used by less than lowThresholds and could be emptied, numberOfNodes is %d",
					len(low), r.args.Unit, r.args.NumberOfNodes), nil
		}
		slices.SortStableFunc(low, func(a, b string) int {
			return cmp.Compare(p.usage(byName[a], r.args.ResourceType), p.usage(byName[b], r.args.ResourceType))
		})
		var units [][]int
		for _, name := range low {
			units = append(units, byName[name])
		}
		p.units = units
		return r.seek(ctx, d, p, func() (*defrag.Plan, string, error) {
			cleared, err := defrag.EmptyUnits(p.Problem,
				defrag.Clearing{Units: units, Targets: r.targets(p, nil, r.args.ResourceType), MaxUnits: mostUnits})
			if err != nil || len(cleared.Cleared) == 0 {
				return nil,
					fmt.Sprintf("none of %d units of %s that are used by less than lowThresholds can be emptied within %d moves and "+
						"%d gangs", len(low), r.args.Unit, d.maxMoves, d.maxGangs), err
			}
			goal.Empty.Names = nil
			for _, unit := range cleared.Cleared {
				goal.Empty.Names = append(goal.Empty.Names, low[unit])
			}
			return &cleared, "", nil
		})
	})
	d.name = goalOf(goal)
	return d, found, why, err
}

// mostUnits is how many units a plan empties at most: as many as its goal can name.
const mostUnits = 256

// isWorth reports whether emptying a unit frees more than what restarts for it alone.
func (r *round) isWorth(p *problem, on map[int][]int, unit []int) bool {
	return p.amountIn(unit, r.args.ResourceType)*100 >= p.loss(r.args.ResourceType,
		p.podsOn(on, unit))*int64(*r.args.MinGain)
}

// amountIn returns how much of a resource some nodes have.
func (p *problem) amountIn(unit []int, name v1.ResourceName) (amount int64) {
	for _, node := range unit {
		has, _ := amountOf(p.simulation.Node(node), name)
		amount += has
	}
	return amount
}

// amountOf returns how much of a resource a node has, and how much of that its pods request. Each pod takes one of
// those that the node may have.
func amountOf(node fwk.NodeInfo, name v1.ResourceName) (has, used int64) {
	if name == v1.ResourcePods {
		return int64(node.GetAllocatable().GetAllowedPodNumber()), int64(len(node.GetPods()))
	}
	return ledger.Amount(node.GetAllocatable(), name), ledger.Amount(node.GetRequested(), name)
}

// byNode returns the pods that may be moved, by their node.
func (p *problem) byNode() map[int][]int {
	on := map[int][]int{}
	for i := range p.Pods {
		on[p.Pods[i].Node] = append(on[p.Pods[i].Node], i)
	}
	return on
}

// podsOn returns the movable pods on some nodes.
func (p *problem) podsOn(byNode map[int][]int, unit []int) (pods []int) {
	for _, node := range unit {
		pods = append(pods, byNode[node]...)
	}
	return pods
}

// movable returns the UIDs of the pods that may be moved.
func (p *problem) movable() map[types.UID]bool {
	may := make(map[types.UID]bool, len(p.pods))
	for _, pod := range p.pods {
		may[pod.UID] = true
	}
	return may
}

// mostRefusals is how often the plugins may refuse nodes to a pod before the pod counts as one without a place, when
// units are emptied: other units may be easier to empty.
const mostRefusals = 4

// demandForUnits returns a demand for nothing, for goals that look at the whole cluster: the priority of the pods that
// are moved does not matter.
func (r *round) demandForUnits(id types.UID, goal v1alpha1.DefragmentationGoal, maxMoves, maxGangs int) *demand {
	d := demandOfGangs(r.anyProfile(), id, 1, 1, nil, "")
	d.goal, d.name, d.maxMoves, d.maxGangs = goal, goalOf(goal), maxMoves, maxGangs
	return d
}

// clearing turns a problem into one of emptying units.
func (p *problem) clearing() {
	p.Want = nil
	fits := p.Fits
	p.Fits = func(pod, node int) bool { return p.refusals[p.pods[pod].UID] < mostRefusals && fits(pod, node) }
}

// unitsOf returns the nodes that have a label, by its value.
func (p *problem) unitsOf(key string) map[string][]int {
	units := map[string][]int{}
	for i := range p.simulation.Len() {
		if value, ok := p.simulation.Node(i).Node().Labels[key]; ok {
			units[value] = append(units[value], i)
		}
	}
	return units
}

// leaveOut makes pods immovable that do not request a resource; with an empty name, it changes nothing.
func (p *problem) leaveOut(name v1.ResourceName) {
	if name != "" {
		p.keepPods(func(pod int) bool { return p.pods[pod].request[name] > 0 })
	}
}

// keepPods makes all other pods immovable.
func (p *problem) keepPods(which func(pod int) bool) {
	n := 0
	for i := range p.Pods {
		if which(i) {
			p.Pods[n], p.pods[n] = p.Pods[i], p.pods[i]
			n++
		}
	}
	p.Pods, p.pods = p.Pods[:n], p.pods[:n]
}

// staying returns the pods on some nodes that would have to be moved, and may not be, each with why. Pods of DaemonSets
// and of the kubelet stay, as when a node is drained; with a resource, so do pods that do not ask for it.
func (r *round) staying(d *demand, p *problem, may map[types.UID]bool, unit []int,
	name v1.ResourceName) (stays []string) {
	for _, node := range unit {
		for _, info := range p.simulation.Node(node).GetPods() {
			pod := info.GetPod()
			switch {
			case belongsToNode(pod), pod.DeletionTimestamp != nil, may[pod.UID]:
			case name != "" && ledger.DemandOf(info).Request[name] == 0:
			default:
				why := cmp.Or(r.whyStays(d, pod), "its gang may not lose it now, as by minRuntime or a PodDisruptionBudget")
				stays = append(stays, fmt.Sprintf("%s/%s (%s)", pod.Namespace, pod.Name, why))
			}
		}
	}
	slices.Sort(stays)
	return stays
}

// targets returns the nodes that may receive pods when units are emptied, the most used of a resource first.
// A move to a node where none of it is used would gain nothing.
func (r *round) targets(p *problem, units [][]int, name v1.ResourceName) []int {
	leaves := map[int]bool{}
	for _, unit := range units {
		for _, node := range unit {
			leaves[node] = true
		}
	}
	name = cmp.Or(name, r.args.ResourceType)
	var list []int
	use := make([]float64, p.simulation.Len())
	for i := range use {
		use[i] = p.usage([]int{i}, name)
		if !leaves[i] && (units != nil || use[i] > 0) {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b int) int { return cmp.Compare(use[b], use[a]) })
	return list
}

// usage returns the requested share of a resource on some nodes; 0 if they have none of it.
func (p *problem) usage(unit []int, name v1.ResourceName) float64 {
	var has, used int64
	for _, node := range unit {
		total, taken := amountOf(p.simulation.Node(node), name)
		has, used = has+total, used+taken
	}
	if has == 0 {
		return 0
	}
	return float64(used) / float64(has)
}

// isLittle reports whether the use of a unit is below lowThresholds for all that they name, but not 0 for the resource.
// A unit on which capacity is held for others does not count: it would not be free if it were empty.
func (r *round) isLittle(d *demand, p *problem, unit []int) bool {
	if use := p.usage(unit, r.args.ResourceType); use == 0 {
		return false
	}
	for _, node := range unit {
		info := p.simulation.Node(node)
		if name := info.Node().Name; !r.nodes.Has(name) || r.resting.Has(name) {
			return false
		}
		if held, _ := r.scheduler.Holds.Others(info,
			hold.Holder{Profile: d.fw.ProfileName(), Group: d.attempt.Group}); held.Pods > 0 {
			return false
		}
	}
	for name, percent := range r.args.LowThresholds {
		if p.usage(unit, name)*100 >= float64(percent) {
			return false
		}
	}
	return true
}
