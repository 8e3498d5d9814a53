package preemption

import (
	"context"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
)

// searching is a search in one round.
type searching struct {
	pl *GangPreemption
	d  *demand
	// Candidates are the gangs that the preemptor may evict.
	*evictions.Candidates
	round *extensionpoints.Round // nil: no pod is evicted
	tier  *extensionpoints.Tier  // the one in use
	room  *planner.Simulation
	// refused are the pods whose eviction the API server refused recently.
	refused map[types.UID]bool
	// victims are the pods, by node, that were chosen before.
	victims map[string][]types.UID
	// evictable is what nodes would gain if all pods that may be evicted went, as far as asked.
	evictable gains
}

// newSearch removes the pods that are ending from the simulation: the preemptors that they were evicted for have their
// place in the ledger already.
func (pl *GangPreemption) newSearch(ctx context.Context, d *demand, room *planner.Simulation,
	round *extensionpoints.Round) (*searching, error) {
	now := pl.clock.Now()
	underway, victims := pl.Underway.AllVictims(), map[string][]types.UID{}
	ending, leaving := evictions.Ending(room, underway, now)
	d.ending = ending
	for _, one := range leaving {
		if uid := one.Info.GetPod().UID; underway[uid] {
			name := room.Node(one.Node).Node().Name
			victims[name] = append(victims[name], uid)
		}
		if err := room.Remove(ctx, one.Info, one.Node); err != nil {
			return nil, err
		}
	}
	s := &searching{
		pl: pl, d: d, round: round, room: room, refused: pl.Underway.Refusals(now), victims: victims, evictable: gains{},
		Candidates: &evictions.Candidates{
			Nodes: room, Gangs: pl.Gangs, Own: d.own, Ending: ending, Request: d.givenBack, Now: now,
			Grace: pl.args.BrokenGrace.Duration,
		},
	}
	if round == nil {
		return s, nil
	}
	s.Queue = round.Queue
	s.Protection = pl.protection(d, round)
	var err error
	s.Budgets, err = evictions.ListBudgets(pl.budgets, false)
	return s, err
}

// protection returns how long gangs are protected from a preemptor in a round.
func (pl *GangPreemption) protection(d *demand, round *extensionpoints.Round) evictions.Protection {
	return evictions.Protection{
		MinRuntime: func(pod *v1.Pod) time.Duration {
			if round.MinRuntime != nil {
				if length, says := round.MinRuntime(pod); says {
					return length
				}
			}
			return pl.args.MinRuntime.Duration
		},
		Cooldown: pl.args.EvictionCooldown.Duration,
		Evicted:  func(of evictions.Owner) time.Time { return pl.Underway.LastEvicted(of, pl.holder(d)) },
	}
}

// givenBack returns what the end of a pod frees of the resources that the preemptor needs.
func (d *demand) givenBack(info fwk.PodInfo) victim.Vector {
	asked := info.CalculateResource().Resource
	request := make(victim.Vector, len(d.resources))
	for name := range d.resources {
		if amount := ledger.Amount(asked, name); amount > 0 {
			request[name] = amount
		}
	}
	return request
}

// gangsOn returns the gangs with pods on these nodes, under the first tier that permits evicting any of these pods; nil
// if there is none.
func (s *searching) gangsOn(nodes []int) []victim.Gang {
	for i := range s.round.Tiers {
		s.tier = &s.round.Tiers[i]
		gangs := s.GangsOn(nodes, func(pod *v1.Pod) bool { return !s.refused[pod.UID] && s.tier.Permits(pod) }, s.tier.Gangs)
		for j := range gangs {
			gangs[j].Stays = s.round.Surplus && len(s.Known()[gangs[j].ID].Gangs) > 0
		}
		for j := range gangs {
			if len(victim.Split(s.d.need, &gangs[j])) > 0 {
				return gangs
			}
		}
	}
	return nil
}

// permits reports whether some tier permits evicting a pod.
func (s *searching) permits(pod *v1.Pod) bool {
	return !s.refused[pod.UID] &&
		slices.ContainsFunc(s.round.Tiers, func(t extensionpoints.Tier) bool { return t.Permits(pod) })
}

// lowestPriority returns the lowest priority of the pods on a node; the minimum for an empty node.
func lowestPriority(info fwk.NodeInfo) int32 {
	if len(info.GetPods()) == 0 {
		return math.MinInt32
	}
	lowest := int32(math.MaxInt32)
	for _, p := range info.GetPods() {
		lowest = min(lowest, corev1helpers.PodPriority(p.GetPod()))
	}
	return lowest
}
