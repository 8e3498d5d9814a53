package defragmentation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
)

// proposal is a plan that was checked.
type proposal struct {
	moves     []v1alpha1.PlannedMove
	places    []v1alpha1.PlannedPlace
	restarts  int32
	predicted *v1alpha1.GangCapacity
	// gained is how much of the resource the gangs get that the moves are for, or the emptied nodes have; lost is how much
	// the pods ask for that restart.
	gained, lost int64
}

func (f *proposal) words() string {
	text := fmt.Sprintf("%d moves, %d pods start anew", len(f.moves), f.restarts)
	if f.predicted != nil {
		text += fmt.Sprintf("; %d gangs of this shape fit before, %d after", f.predicted.Before, f.predicted.After)
	}
	return text
}

// propose turns a plan into a proposal.
func (r *round) propose(d *demand, p *problem, plan *defrag.Plan, at map[types.UID]string) *proposal {
	f := &proposal{restarts: int32(plan.Cost[0]), predicted: p.predict(d, plan)}
	f.gained, f.lost = p.gain(r.args.ResourceType, plan)
	for i, move := range plan.Moves {
		pod, one := p.pods[move.Pod], &p.Pods[move.Pod]
		m := v1alpha1.PlannedMove{
			Namespace: pod.Namespace, PodName: pod.Name, PodUID: pod.UID, SourceNode: p.nodeName(one.Node),
			TargetNode: p.nodeName(move.To), Bare: metav1.GetControllerOf(pod) == nil, Why: p.why(d, plan, i),
		}
		if of := pod.gang; of != nil {
			m.PodGroup, m.SucceededGone = of.Key.Name, int32(of.Gone)
		}
		for _, before := range move.After {
			m.After = append(m.After, int32(before))
		}
		f.moves = append(f.moves, m)
	}
	if !d.waits() {
		return f
	}
	for _, classes := range p.classes {
		for _, class := range classes {
			count := map[string]int32{}
			for _, pod := range class.Pods {
				if node := at[pod.UID]; node != "" {
					count[node]++
				}
			}
			for _, node := range sortedKeys(count) {
				one := class.Pods[0]
				f.places = append(f.places, v1alpha1.PlannedPlace{
					Namespace: one.Namespace, PodName: one.Name, PodUID: one.UID, NodeName: node, Members: count[node],
				})
			}
		}
	}
	return f
}

// why returns what a move is for.
func (p *problem) why(d *demand, plan *defrag.Plan, move int) string {
	source := p.Pods[plan.Moves[move].Pod].Node
	if d.goal.Empty != nil {
		return "empties node " + p.nodeName(source)
	}
	for _, part := range plan.Places {
		for _, class := range part {
			if slices.Contains(class, source) {
				return fmt.Sprintf("makes room for %s on node %s", d.name, p.nodeName(source))
			}
		}
	}
	for later := move + 1; later < len(plan.Moves); later++ {
		if slices.Contains(plan.Moves[later].After, move) {
			pod := p.pods[plan.Moves[later].Pod]
			return fmt.Sprintf("makes room for pod %s/%s, which makes room for %s", pod.Namespace, pod.Name, d.name)
		}
	}
	return "makes room for " + d.name
}

// predict returns how many gangs of the shape fit before and after; nil where the demand is neither for more gangs nor
// one gang without slices.
func (p *problem) predict(d *demand, plan *defrag.Plan) *v1alpha1.GangCapacity {
	switch {
	case d.more:
		return &v1alpha1.GangCapacity{Before: p.before, After: p.before + int32(len(p.classes))}
	case !d.waits() || !p.plain():
		return nil
	}
	before, _ := capacity(&p.Problem, nil)
	after, _ := capacity(&p.Problem, plan.Moves)
	c := &v1alpha1.GangCapacity{}
	key := d.attempt.Gangs[0].Spec.RequiredTopology
	for i := range before {
		c.Before += int32(before[i])
		c.After += int32(after[i])
		if key != "" && before[i] != after[i] && len(c.Domains) < 256 {
			name := p.simulation.Node(p.Want[0].Domains[i][0]).Node().Labels[key]
			c.Domains = append(c.Domains, v1alpha1.DomainCapacity{Name: name, Before: int32(before[i]), After: int32(after[i])})
		}
	}
	return c
}

// gain returns how much of a resource the gangs get that a plan is for, or the emptied nodes have, and how much the
// pods ask for that restart.
func (p *problem) gain(name v1.ResourceName, plan *defrag.Plan) (gained, lost int64) {
	for part, places := range plan.Places {
		for class, nodes := range places {
			gained += p.classes[p.gangOf[part]][class].Demand.Request[name] * int64(len(nodes))
		}
	}
	for _, unit := range plan.Cleared {
		gained += p.amountIn(p.units[unit], name)
	}
	var pods []int
	for _, m := range plan.Moves {
		pods = append(pods, m.Pod)
	}
	return gained, p.loss(name, pods)
}

// loss returns how much of a resource the pods ask for that restart if some pods are moved.
func (p *problem) loss(name v1.ResourceName, pods []int) (lost int64) {
	moved, own := map[int]int{}, map[int]int64{}
	for _, pod := range pods {
		asked := p.pods[pod].request[name]
		if group := p.Pods[pod].Group; group >= 0 {
			moved[group]++
			own[group] += asked
			continue
		}
		lost += asked
	}
	for group, n := range moved {
		if n > p.Groups[group].Spare {
			lost += p.asks[group][name]
		} else {
			lost += own[group]
		}
	}
	return lost
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
