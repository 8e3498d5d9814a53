package preemption

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
)

// freed returns what a node would gain if all pods that may be evicted went.
func (c *candidates) freed(node int) (victim.Vector, int) {
	if c.sums == nil {
		c.sums = make([]*freed, c.room.Len())
	}
	if c.sums[node] == nil {
		sum := &freed{amount: victim.Vector{}}
		for _, info := range c.room.Node(node).GetPods() {
			if pod := info.GetPod(); !c.Ending[pod.UID] && !c.d.own[evictions.OwnerOf(c.Gangs, pod)] && c.permits(pod) {
				sum.amount.Add(c.Request(info), 1)
				sum.pods++
			}
		}
		c.sums[node] = sum
	}
	return c.sums[node].amount, c.sums[node].pods
}

// freed is what pods would free.
type freed struct {
	amount victim.Vector
	pods   int
}

// freedBy returns what nodes would gain if all pods went that may be evicted with or without their gang.
func (c *candidates) freedBy(gangs []victim.Gang, need victim.Vector) func(int) (victim.Vector, int) {
	sums := map[int]*freed{}
	for i := range gangs {
		for _, b := range victim.Split(need, &gangs[i]) {
			for _, pod := range b.Pods {
				at, ok := c.Place(pod.UID)
				if !ok || !pod.Local {
					continue
				}
				if sums[at.Node] == nil {
					sums[at.Node] = &freed{amount: victim.Vector{}}
				}
				sums[at.Node].amount.Add(pod.Request, 1)
				sums[at.Node].pods++
			}
		}
	}
	return func(node int) (victim.Vector, int) {
		if sum := sums[node]; sum != nil {
			return sum.amount, sum.pods
		}
		return nil, 0
	}
}

// preferFewerNodes ranks the pods by their nodes, so that the surplus of all gangs is taken from the same ones: first
// from the nodes that would have most free without all pods of gangs with surplus. It returns false if no gang has a
// choice.
func (c *candidates) preferFewerNodes(gangs []victim.Gang, need victim.Vector) bool {
	gain := map[int]float64{}
	choice := false
	for i := range gangs {
		g := &gangs[i]
		if len(g.Pods) <= g.Min {
			continue
		}
		nodes := map[int]bool{}
		for _, pod := range g.Pods {
			if at, ok := c.Place(pod.UID); ok && pod.Local && !pod.Protected {
				nodes[at.Node] = true
				gain[at.Node] += victim.Coverage(need, pod.Request)
			}
		}
		choice = choice || len(nodes) > 1
	}
	if !choice {
		return false
	}
	for node := range gain {
		gain[node] += c.freeCoverage(node, need)
	}
	order := slices.SortedFunc(maps.Keys(gain), func(a, b int) int {
		return cmp.Or(cmp.Compare(gain[b], gain[a]), cmp.Compare(c.room.Node(a).Node().Name, c.room.Node(b).Node().Name))
	})
	rank := make(map[int]int, len(order))
	for i, node := range order {
		rank[node] = i
	}
	for i := range gangs {
		for j := range gangs[i].Pods {
			pod := &gangs[i].Pods[j]
			if at, ok := c.Place(pod.UID); ok && pod.Local {
				pod.Rank = rank[at.Node]
			}
		}
	}
	return true
}

// freeCoverage returns how much of the need a node has free.
func (c *candidates) freeCoverage(node int, need victim.Vector) float64 {
	info := c.room.Node(node)
	free := victim.Vector{}
	for name := range need {
		free[name] = max(0, ledger.Amount(info.GetAllocatable(), name)-ledger.Amount(info.GetRequested(), name))
	}
	return victim.Coverage(need, free)
}
