package preemption

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
)

// gains are what nodes would gain if some pods went.
type gains map[int]gain

type gain struct {
	amount victim.Vector
	pods   int
}

func (g gains) add(node int, request victim.Vector) {
	sum := g[node]
	if sum.amount == nil {
		sum.amount = victim.Vector{}
	}
	sum.amount.Add(request, 1)
	sum.pods++
	g[node] = sum
}

func (g gains) of(node int) (victim.Vector, int) { return g[node].amount, g[node].pods }

// freed returns what a node would gain if all pods that may be evicted went.
func (s *searching) freed(node int) (victim.Vector, int) {
	if _, known := s.evictable[node]; !known && s.round != nil {
		s.evictable[node] = gain{}
		for _, info := range s.room.Node(node).GetPods() {
			if pod := info.GetPod(); !s.Ending[pod.UID] && !s.d.own[evictions.OwnerOf(s.Gangs, pod)] && s.permits(pod) {
				s.evictable.add(node, s.Request(info))
			}
		}
	}
	return s.evictable.of(node)
}

// freedBy returns what nodes would gain if all pods went that may be evicted with or without their gang.
func (s *searching) freedBy(gangs []victim.Gang) gains {
	sums := gains{}
	for i := range gangs {
		for _, b := range victim.Split(s.d.need, &gangs[i]) {
			for _, pod := range b.Pods {
				if at, ok := s.Place(pod.UID); ok && pod.Local {
					sums.add(at.Node, pod.Request)
				}
			}
		}
	}
	return sums
}

// preferFewerNodes ranks the pods by their nodes, so that the surplus of all gangs is taken from the same ones: first
// from the nodes that would have most free without all pods of gangs with surplus. It returns false if no gang has a
// choice.
func (s *searching) preferFewerNodes(gangs []victim.Gang) bool {
	gain := map[int]float64{}
	choice := false
	for i := range gangs {
		g := &gangs[i]
		if len(g.Pods) <= g.Min {
			continue
		}
		nodes := map[int]bool{}
		for _, pod := range g.Pods {
			if at, ok := s.Place(pod.UID); ok && pod.Local && !pod.Protected {
				nodes[at.Node] = true
				gain[at.Node] += victim.Coverage(s.d.need, pod.Request)
			}
		}
		choice = choice || len(nodes) > 1
	}
	if !choice {
		return false
	}
	for node := range gain {
		gain[node] += s.freeCoverage(node)
	}
	order := slices.SortedFunc(maps.Keys(gain), func(a, b int) int {
		return cmp.Or(cmp.Compare(gain[b], gain[a]), cmp.Compare(s.room.Node(a).Node().Name, s.room.Node(b).Node().Name))
	})
	rank := make(map[int]int, len(order))
	for i, node := range order {
		rank[node] = i
	}
	for i := range gangs {
		for j := range gangs[i].Pods {
			pod := &gangs[i].Pods[j]
			if at, ok := s.Place(pod.UID); ok && pod.Local {
				pod.Rank = rank[at.Node]
			}
		}
	}
	return true
}

// freeCoverage returns how much of the need a node has free.
func (s *searching) freeCoverage(node int) float64 {
	info := s.room.Node(node)
	free := victim.Vector{}
	for name := range s.d.need {
		free[name] = max(0, ledger.Amount(info.GetAllocatable(), name)-ledger.Amount(info.GetRequested(), name))
	}
	return victim.Coverage(s.d.need, free)
}
