package preemption

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// execution carries out what was found for a preemptor.
type execution struct {
	*GangPreemption
	d *demand
	f *found
	// evicted has the UIDs of the pods that were evicted, or found gone.
	evicted sync.Map
	// counted is done with the first victim, which counts the preemption.
	counted sync.Once
}

// beginPreemption holds the places that were found, and adopts the victims of those whose places it takes; evictions
// and nominations follow on a goroutine, since they call the API server. It holds nothing and returns false if pods
// that had been chosen before, and that the plan assumed gone, are no longer victims.
func (pl *GangPreemption) beginPreemption(ctx context.Context, d *demand, f *found) bool {
	e := &execution{GangPreemption: pl, d: d, f: f}
	e.makePreemption()
	var earlier []hold.Hold
	for uid, node := range f.plan.Nodes {
		demand := f.plan.Demand[uid]
		if one, ok := pl.Holds.Nomination(uid); ok {
			earlier = append(earlier, one)
		}
		pl.Holds.Nominate(hold.Hold{For: uid, Holder: f.preemption.Holder, Node: node, Priority: d.gang.Priority,
			Request: demand.Request, Ports: demand.Ports, Devices: demand.Devices, Claim: f.preemption.Claim})
	}
	// After the nominations: who is nominated to the node of a victim that is released looks again.
	if !pl.Underway.AdoptVictims(f.preemption, f.leaving, f.outrank) {
		e.dropNominations()
		for _, one := range earlier {
			pl.Holds.Nominate(one)
		}
		return false
	}
	for _, holder := range f.outrank {
		pl.Holds.DropNominations(holder) // with one place less a gang cannot start: it loses all of them
	}
	pl.Gangs.Yield(ctx, f.outrank)
	pl.Underway.AddVictims(pl.Gangs, f.preemption, f.victims)
	// The cycle's context ends with the cycle.
	go e.carryOut(context.WithoutCancel(ctx))
	return true
}

// makePreemption makes a Preemption of what was found.
func (e *execution) makePreemption() {
	e.f.preemption = &evictions.Preemption{Holder: e.holder(e.d), Claim: e.Holds.NewClaim(), Leader: e.d.leader,
		Preemptor: e.d.String(), Need: e.d.need.String(), From: e.f.from, Stands: e.preemptorNeeds}
}

// deadline bounds the API calls of one preemption.
const deadline = 2 * time.Minute

// carryOut nominates and evicts. It evicts no pod if an eviction would be refused, a nomination fails, or the decision
// is outdated, and no further gang once the preemptor does not need the capacity. What it has freed stays held for the
// preemptor, which searches again for the rest.
func (e *execution) carryOut(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	logger := klog.FromContext(ctx)
	failed, stale := e.prepare(ctx)
	withdrawn := len(failed) > 0 || stale != ""
	if !withdrawn {
		failed = e.evictAll(ctx)
	}
	after := time.Duration(0)
	switch {
	case stale != "":
		logger.V(2).Info("Preemption aborted; the preemptor will retry", "preemptor", e.d.String(), "why", stale)
	case len(failed) > 0:
		evictionErrors.Add(float64(len(failed)))
		logger.Error(failed[0], "Preemption failed; the preemptor will retry", "preemptor", e.d.String(), "errors",
			len(failed))
		after = pauseAfterErrors
	}
	if withdrawn {
		after = e.pause(e.d, after, aborted, msgAborted)
		e.withdraw()
	} else {
		e.pauses.end(e.d.attempt.Group)
	}
	if holder := e.holder(e.d); e.Underway.Victims(holder) == 0 || !e.Holds.Nominated(holder) {
		e.retryAfter(e.d.leader, after)
	}
}

// prepare does all that can be undone, and then makes promises make way. It returns what failed, or why the decision no
// longer holds.
func (e *execution) prepare(ctx context.Context) (failed []error, stale string) {
	if failed = e.evictor.RehearseAll(ctx, e.f.victims); len(failed) > 0 {
		return failed, ""
	}
	if failed = e.nominateAll(ctx); len(failed) > 0 {
		return failed, ""
	}
	if stale = e.outdated(); stale != "" {
		return nil, stale
	}
	if err := e.Promises.Yield(ctx, e.f.outrank, e.f.nodes(), e.d.gang.Priority); err != nil {
		return []error{err}, ""
	}
	return nil, ""
}

// withdraw takes back a decision that is not carried out.
func (e *execution) withdraw() {
	e.dropNominations()
	e.releaseVictims(e.f.victims)
}

// dropNominations ends the nominations of the decision. Later ones stand.
func (e *execution) dropNominations() {
	for uid := range e.f.plan.Nodes {
		if e.isNominated(uid) {
			e.Holds.DropNomination(uid)
		}
	}
}

// isNominated reports whether a pod has a nomination of the decision.
func (e *execution) isNominated(pod types.UID) bool {
	one, ok := e.Holds.Nomination(pod)
	return ok && one.Claim == e.f.preemption.Claim
}

// pauseAfterErrors is how long a preemptor waits after an error.
const pauseAfterErrors = time.Second

// evictAll evicts the victims, and records events on the preemptor and on the gangs that lost
// pods.
func (e *execution) evictAll(ctx context.Context) []error {
	if len(e.f.victims) == 0 {
		return nil // only nominations and holds make way
	}
	if e.preemptorNeeds() {
		preempting(e.d, e.f, e.cutShortMessage(e.d)).Record(e.fw.EventRecorder())
	}
	var units []loss // each is one decision
	for _, one := range e.f.losses() {
		if one.ends(e.args.EvictBrokenGangs) {
			units = append(units, one)
			continue
		}
		for _, pod := range one.victims {
			one.victims = []*v1.Pod{pod}
			units = append(units, one)
		}
	}
	errs := evictions.InParallel(ctx, len(units), func(i int) error {
		one := units[i]
		switch p := e.Underway.NeededBy(one.victims); {
		case p == nil:
			e.releaseVictims(one.victims)
			return nil
		case one.ends(e.args.EvictBrokenGangs):
			return e.evictWhole(ctx, p, one)
		default:
			return e.evictOne(ctx, p, &one, evictions.Eviction{Pod: one.victims[0], From: e.f.from[one.victims[0].UID],
				Needed: func() bool { return e.Underway.NeededBy(one.victims) != nil }})
		}
	})
	e.releaseVictims(e.f.victims) // time may have been up before their turn
	e.recordVictims(ctx)
	return errs
}

// hasEvicted reports whether a pod was evicted, or found gone.
func (e *execution) hasEvicted(pod types.UID) bool {
	_, ok := e.evicted.Load(pod)
	return ok
}

// releaseVictims records that those of some victims that were not evicted stay. It ignores pods that another preemptor
// has chosen since.
func (e *execution) releaseVictims(pods []*v1.Pod) {
	var stay []types.UID
	for _, pod := range pods {
		if !e.hasEvicted(pod.UID) {
			stay = append(stay, pod.UID)
		}
	}
	e.Underway.ReleaseVictims(e.f.preemption, stay...)
}

// evictOne evicts a pod of a loss for a preemption if that is still needed once the pod is marked.
func (e *execution) evictOne(ctx context.Context, p *evictions.Preemption, of *loss, one evictions.Eviction) error {
	one.For, one.Note = p.Leader, of.eventNote(p, one.Pod)
	outcome, err := e.evictor.Evict(ctx, e.f.preemption, one)
	if err != nil || e.hasEvicted(one.Pod.UID) { // its owner was to delete it, and did not
		return err
	}
	if outcome == evictions.Ends || outcome == evictions.CalledOff {
		e.counted.Do(func() { preemptions.WithLabelValues(e.f.round.Name).Inc() })
		victimsTotal.Inc()
	}
	switch outcome {
	case evictions.Ends, evictions.WasGone:
		e.evicted.Store(one.Pod.UID, true)
	case evictions.CalledOff:
		e.Holds.DropNomination(one.Pod.UID) // the preemptor comes in its place
	}
	return nil
}
