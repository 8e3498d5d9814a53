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

	"github.com/lockstep-sh/lockstep/plugins/eviction"
	"github.com/lockstep-sh/lockstep/plugins/gangpoint"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/planner"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// candidates are the gangs that may make way for a preemptor in a round.
type candidates struct {
	*eviction.Candidates
	d     *demand
	round *gangpoint.Round // nil: no pod is evicted
	tier  *gangpoint.Tier  // the one that is asked
	room  *planner.Room
	// refused are the pods of which the API server refused the eviction a moment ago.
	refused map[types.UID]bool
	// promised are the pods, by node, that other preemptors have chosen and that are not being
	// deleted yet.
	promised map[string][]types.UID
	sums     []*freed // by node
}

// newCandidates supposes that the pods which are ending anyhow are gone: the preemptors that they
// make room for have their place in the ledger already.
func (pl *GangPreemption) newCandidates(ctx context.Context, d *demand, room *planner.Room, round *gangpoint.Round) (*candidates, error) {
	now := pl.clock.Now()
	ending, leaving := eviction.Ending(room, pl.Underway.All(), now)
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
	c := &candidates{d: d, round: round, room: room, refused: pl.Underway.Refusals(now), promised: promised, Candidates: &eviction.Candidates{
		Nodes: room, Gangs: pl.Gangs, Own: d.own, Ending: ending, Request: d.givenBack, Now: now, Grace: pl.args.BrokenGrace.Duration,
	}}
	if round == nil {
		return c, nil
	}
	c.Queue = round.Queue
	c.Respite = pl.respite(d, round)
	var err error
	c.Budgets, err = eviction.ListBudgets(pl.budgets)
	return c, err
}

// respite returns how long gangs are left alone by a preemptor in a round.
func (pl *GangPreemption) respite(d *demand, round *gangpoint.Round) eviction.Respite {
	r := eviction.Respite{Cooldown: pl.args.EvictionCooldown.Duration, MinRuntime: func(pod *v1.Pod) time.Duration {
		if round.MinRuntime != nil {
			if length, says := round.MinRuntime(pod); says {
				return length
			}
		}
		return pl.args.MinRuntime.Duration
	}}
	if r.Cooldown > 0 {
		r.Evicted = func(of eviction.Owner) time.Time { return pl.Underway.Evicted(of, pl.holder(d)) }
	}
	return r
}

// givenBack returns what the end of a pod gives back of what the preemptor needs.
func (d *demand) givenBack(info fwk.PodInfo) victim.Vector {
	asked := info.CalculateResource().Resource
	request := make(victim.Vector, len(d.resources))
	for name := range d.resources {
		if amount := holds.Amount(asked, name); amount > 0 {
			request[name] = amount
		}
	}
	return request
}

// among finds the gangs that have pods on these nodes, as the first tier sees them in which any
// of these pods may be evicted; nil where there is none.
func (c *candidates) among(nodes []int) []victim.Gang {
	for i := range c.round.Tiers {
		c.tier = &c.round.Tiers[i]
		gangs := c.On(nodes, func(pod *v1.Pod) bool { return !c.refused[pod.UID] && c.tier.Permits(pod) }, c.tier.Gangs)
		for j := range gangs {
			if len(victim.Split(c.d.need, &gangs[j])) > 0 {
				return gangs
			}
		}
	}
	return nil
}

// mayGo reports whether some tier permits the eviction of a pod.
func (c *candidates) mayGo(pod *v1.Pod) bool {
	return !c.refused[pod.UID] && slices.ContainsFunc(c.round.Tiers, func(t gangpoint.Tier) bool { return t.Permits(pod) })
}

// lowestPriority returns the priority of the least important pod on a node; of an empty node it
// is the lowest there is.
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
