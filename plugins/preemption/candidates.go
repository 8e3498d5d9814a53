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
	"github.com/lockstep-sh/lockstep/pkg/framework/extension"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
)

// candidates are the gangs that a preemptor may evict in a round.
type candidates struct {
	*evictions.Candidates
	d     *demand
	round *extension.Round // nil: no pod is evicted
	tier  *extension.Tier  // the one in use
	room  *planner.Simulation
	// refused are the pods whose eviction the API server refused recently.
	refused map[types.UID]bool
	// promised are the pods, by node, that other preemptors have chosen and that are not being deleted yet.
	promised map[string][]types.UID
	sums     []*freed // by node
}

// newCandidates removes the pods that are ending from the simulation: the preemptors that they were evicted for have
// their place in the ledger already.
func (pl *GangPreemption) newCandidates(ctx context.Context, d *demand, room *planner.Simulation,
	round *extension.Round) (*candidates, error) {
	now := pl.clock.Now()
	ending, leaving := evictions.Ending(room, pl.Underway.All(), now)
	promised := map[string][]types.UID{}
	for _, one := range leaving {
		if pod := one.Info.GetPod(); pod.DeletionTimestamp == nil {
			name := room.Node(one.Node).Node().Name
			promised[name] = append(promised[name], pod.UID)
		}
		if err := room.Remove(ctx, one.Info, one.Node); err != nil {
			return nil, err
		}
	}
	c := &candidates{d: d, round: round, room: room, refused: pl.Underway.Refusals(now), promised: promised,
		Candidates: &evictions.Candidates{
			Nodes: room, Gangs: pl.Gangs, Own: d.own, Ending: ending, Request: d.givenBack, Now: now,
			Grace: pl.args.BrokenGrace.Duration,
		}}
	if round == nil {
		return c, nil
	}
	c.Queue = round.Queue
	c.Protection = pl.protection(d, round)
	var err error
	c.Budgets, err = evictions.ListBudgets(pl.budgets)
	return c, err
}

// protection returns how long gangs are protected from a preemptor in a round.
func (pl *GangPreemption) protection(d *demand, round *extension.Round) evictions.Protection {
	r := evictions.Protection{Cooldown: pl.args.EvictionCooldown.Duration, MinRuntime: func(pod *v1.Pod) time.Duration {
		if round.MinRuntime != nil {
			if length, says := round.MinRuntime(pod); says {
				return length
			}
		}
		return pl.args.MinRuntime.Duration
	}}
	if r.Cooldown > 0 {
		r.Evicted = func(of evictions.Owner) time.Time { return pl.Underway.LastEvicted(of, pl.holder(d)) }
	}
	return r
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
func (c *candidates) gangsOn(nodes []int) []victim.Gang {
	for i := range c.round.Tiers {
		c.tier = &c.round.Tiers[i]
		gangs := c.On(nodes, func(pod *v1.Pod) bool { return !c.refused[pod.UID] && c.tier.Permits(pod) }, c.tier.Gangs)
		for j := range gangs {
			gangs[j].Stays = c.round.Surplus && len(c.Known()[gangs[j].ID].Gangs) > 0
		}
		for j := range gangs {
			if len(victim.Split(c.d.need, &gangs[j])) > 0 {
				return gangs
			}
		}
	}
	return nil
}

// permits reports whether some tier permits evicting a pod.
func (c *candidates) permits(pod *v1.Pod) bool {
	return !c.refused[pod.UID] && slices.ContainsFunc(c.round.Tiers, func(t extension.Tier) bool { return t.Permits(pod) })
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
