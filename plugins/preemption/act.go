package preemption

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework/parallelize"

	"github.com/lockstep-sh/lockstep/plugins/eviction"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// act makes room: the places are held from now on; evictions and nominations follow on
// goroutines of their own, since they are calls to the API server. It does nothing and returns
// false if pods that other preemptors had chosen, and that were taken for gone, go on after
// all.
func (pl *GangPreemption) act(ctx context.Context, d *demand, f *found) bool {
	holder := pl.holder(d)
	f.claim = pl.Holds.NewClaim()
	if !pl.Underway.Want(holder, f.claim, f.relies) {
		return false
	}
	for uid, node := range f.plan.Nodes {
		demand := f.plan.Demand[uid]
		pl.Holds.Nominate(hold.Hold{For: uid, Holder: holder, Node: node, Priority: d.priority, Request: demand.Request, Ports: demand.Ports, Devices: demand.Devices, Claim: f.claim})
	}
	pl.outrank(f)
	pl.Gangs.Yield(ctx, pl.Holds.Among(f.outrank, maps.Values(f.plan.Nodes)))
	pl.Underway.Begin(pl.Gangs, holder, f.victims)
	// The cycle's context ends with the cycle.
	go pl.carryOut(context.WithoutCancel(ctx), d, f)
	return true
}

// deadline bounds how long the calls of one preemption may take.
const deadline = 2 * time.Minute

// carryOut nominates and evicts. No pod is evicted where one of the evictions would be
// refused, a nomination fails, or what was found does not hold any more; and no further
// gang once the preemptor does not need the room. What was begun stays held for the
// preemptor, which looks again for what is left.
func (pl *GangPreemption) carryOut(ctx context.Context, d *demand, f *found) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	logger := klog.FromContext(ctx)
	failed := pl.prepare(ctx, d, f)
	stale := ""
	if len(failed) == 0 {
		stale = pl.outdated(ctx, d, f)
	}
	if len(failed) == 0 && stale == "" {
		if err := pl.breakPromises(ctx, d, f); err != nil {
			failed = append(failed, err)
		}
	}
	if stale != "" {
		logger.V(2).Info("Preemption is not carried out; the preemptor will look again", "preemptor", d.String(), "why", stale)
	}
	withdrawn := len(failed) > 0 || stale != ""
	if withdrawn {
		pl.withdraw(f)
	} else {
		failed = pl.evictAll(ctx, d, f)
	}
	after := time.Duration(0)
	if len(failed) > 0 {
		evictionErrors.Add(float64(len(failed)))
		logger.Error(failed[0], "Failed to make room; the preemptor will look again", "preemptor", d.String(), "errors", len(failed))
		after = pauseAfterErrors
	}
	if withdrawn {
		after = pl.pauses.withdrawn(d.group, pl.clock.Now(), after)
	} else {
		pl.pauses.forget(d.group)
	}
	if pl.Underway.Victims(pl.holder(d)) == 0 {
		pl.comeAgain(d.leader, after)
	}
}

// withdraw takes back what was promised to the preemptor by a decision that is not carried
// out. What was promised to it since stands.
func (pl *GangPreemption) withdraw(f *found) {
	for uid := range f.plan.Nodes {
		if one, ok := pl.Holds.Nomination(uid); ok && one.Claim == f.claim {
			pl.Holds.DropNomination(uid)
		}
	}
	pl.spare(f.victims)
}

// prepare does all that can be taken back.
func (pl *GangPreemption) prepare(ctx context.Context, d *demand, f *found) []error {
	var errs collected
	pl.each(ctx, len(f.victims), func(i int) { errs.add(pl.evictor.Rehearse(ctx, f.victims[i])) })
	if failed := errs.list(); len(failed) > 0 {
		return failed
	}
	return pl.nominateAll(ctx, d, f)
}

// pauseAfterErrors is how long a preemptor is kept from trying again.
const pauseAfterErrors = time.Second

// evictAll evicts the victims, and records events on the preemptor and on the gangs that lost
// pods.
func (pl *GangPreemption) evictAll(ctx context.Context, d *demand, f *found) []error {
	if len(f.victims) == 0 {
		return nil // what others have nominated or hold makes way
	}
	if pl.needs(d, f) {
		pl.tellPreemptor(d, f)
	}
	var errs collected
	units, evicted := f.units(pl.args.EvictBrokenGangs), &evictions{}
	pl.each(ctx, len(units), func(i int) {
		if !pl.needed(d, f, units[i].pods) {
			pl.spare(units[i].pods)
			return
		}
		if units[i].whole {
			errs.add(pl.evictWhole(ctx, d, f, units[i], evicted))
			return
		}
		for _, pod := range units[i].pods {
			errs.add(pl.evictOne(ctx, d, f, eviction.Turn{Pod: pod, From: f.from[pod.UID], Needed: func() bool { return pl.needed(d, f, units[i].pods) }}, evicted))
		}
	})
	pl.spareOthers(d, f.victims, evicted)
	pl.tellVictims(d, f, evicted)
	return errs.list()
}

// unit is victims that one decision is about.
type unit struct {
	// of is the gang that ends whole, or the pod.
	of    eviction.Owner
	whole bool
	pods  []*v1.Pod
	// stay are members that may not be evicted.
	stay map[types.UID]bool
}

// units divides the victims into what is evicted together, once begun: gangs that end whole,
// those that are broken already included if they are to end, and single pods.
func (f *found) units(broken bool) []unit {
	byUID := map[types.UID]*v1.Pod{}
	for _, pod := range f.victims {
		byUID[pod.UID] = pod
	}
	var units []unit
	for _, b := range f.selection.Bundles {
		if b.Kind != victim.Whole && !(b.Broken && broken) {
			continue
		}
		u := unit{of: f.gangs[b.Gang.ID].Of, whole: true, stay: map[types.UID]bool{}}
		for _, one := range b.Gang.Pods {
			if one.Protected {
				u.stay[one.UID] = true
			}
			if pod := byUID[one.UID]; pod != nil {
				u.pods = append(u.pods, pod)
				delete(byUID, one.UID)
			}
		}
		if len(u.pods) > 0 {
			units = append(units, u)
		}
	}
	for _, pod := range f.victims {
		if byUID[pod.UID] != nil {
			units = append(units, unit{pods: []*v1.Pod{pod}})
		}
	}
	return units
}

// evictions are the pods that were evicted, or found gone. It is safe for concurrent use.
type evictions struct {
	done  sync.Map
	first sync.Once
}

// count counts a pod that was evicted, or called off, and with the first the preemption.
func (e *evictions) count(f *found) {
	e.first.Do(func() { preemptions.WithLabelValues(f.round).Inc() })
	victimsTotal.Inc()
}

func (e *evictions) has(pod types.UID) bool {
	_, ok := e.done.Load(pod)
	return ok
}

func (e *evictions) any(pods []victim.Pod) bool {
	return slices.ContainsFunc(pods, func(p victim.Pod) bool { return e.has(p.UID) })
}

// spare notes that victims go on.
func (pl *GangPreemption) spare(pods []*v1.Pod) {
	for _, pod := range pods {
		pl.Underway.Spared(pod.UID)
	}
}

// spareOthers notes that the victims go on that were not evicted: time may have been up before
// their turn came.
func (pl *GangPreemption) spareOthers(d *demand, pods []*v1.Pod, evicted *evictions) {
	for _, pod := range pods {
		if !evicted.has(pod.UID) {
			pl.Underway.SparedBy(pl.holder(d), pod.UID)
		}
	}
}

// evictOne evicts a pod for a preemptor, if the room is still needed once the pod is marked.
func (pl *GangPreemption) evictOne(ctx context.Context, d *demand, f *found, one eviction.Turn, evicted *evictions) error {
	one.For, one.Note = d.leader, f.note(d, d.String(), one.Pod)
	if taker, name := pl.taker(d, f, one.Pod); taker != nil {
		one.For, one.Note = taker, f.note(d, name, one.Pod)
	}
	outcome, err := pl.evictor.Evict(ctx, one)
	if err != nil {
		return err
	}
	switch outcome {
	case eviction.Ends:
		evicted.count(f)
		evicted.done.Store(one.Pod.UID, true)
	case eviction.WasGone:
		evicted.done.Store(one.Pod.UID, true)
	case eviction.CalledOff:
		evicted.count(f)
		pl.Holds.DropNomination(one.Pod.UID) // the preemptor comes in its place
	}
	return nil
}

// each runs calls to the API server, some at a time.
func (pl *GangPreemption) each(ctx context.Context, n int, do func(int)) {
	parallelize.NewParallelizer(parallelize.DefaultParallelism).Until(ctx, n, do, Name)
}

// collected are errors of calls that run beside each other.
type collected struct {
	mu   sync.Mutex
	errs []error
}

func (c *collected) add(err error) {
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	}
}

func (c *collected) list() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.errs)
}
