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

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// begin begins a preemption. It holds the places from now on; evictions and nominations follow on goroutines, since
// they call the API server. It does nothing and returns false if pods that other preemptors had chosen, and that the
// plan assumed gone, are no longer victims.
func (pl *GangPreemption) begin(ctx context.Context, d *demand, f *found) bool {
	holder := pl.holder(d)
	f.claim = pl.Holds.NewClaim()
	if !pl.Underway.RelyOn(holder, f.claim, f.reliesOn) {
		return false
	}
	for uid, node := range f.plan.Nodes {
		demand := f.plan.Demand[uid]
		pl.Holds.Nominate(hold.Hold{For: uid, Holder: holder, Node: node, Priority: d.priority, Request: demand.Request,
			Ports: demand.Ports, Devices: demand.Devices, Claim: f.claim})
	}
	pl.dropOutranked(f)
	pl.Gangs.Yield(ctx, pl.Holds.Among(f.outrank, maps.Values(f.plan.Nodes)))
	pl.Underway.AddVictims(pl.Gangs, holder, f.victims)
	// The cycle's context ends with the cycle.
	go pl.carryOut(context.WithoutCancel(ctx), d, f)
	return true
}

// deadline bounds the API calls of one preemption.
const deadline = 2 * time.Minute

// carryOut nominates and evicts. It evicts no pod if an eviction would be refused, a nomination fails, or the decision
// is outdated, and no further gang once the preemptor does not need the capacity. What it has freed stays held for the
// preemptor, which searches again for the rest.
func (pl *GangPreemption) carryOut(ctx context.Context, d *demand, f *found) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	logger := klog.FromContext(ctx)
	failed := pl.rehearse(ctx, d, f)
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
		logger.V(2).Info("Preemption aborted; the preemptor will retry", "preemptor",
			d.String(), "why", stale)
	}
	withdrawn := len(failed) > 0 || stale != ""
	if withdrawn {
		pl.withdraw(d, f)
	} else {
		failed = pl.evictAll(ctx, d, f)
	}
	after := time.Duration(0)
	if len(failed) > 0 {
		evictionErrors.Add(float64(len(failed)))
		logger.Error(failed[0], "Preemption failed; the preemptor will retry", "preemptor",
			d.String(), "errors", len(failed))
		after = pauseAfterErrors
	}
	if withdrawn {
		after = pl.pauses.recordAbort(d.group, pl.clock.Now(), after)
	} else {
		pl.pauses.end(d.group)
	}
	if pl.Underway.Victims(pl.holder(d)) == 0 {
		pl.retryAfter(d.leader, after)
	}
}

// withdraw takes back the nominations of a decision that is not carried out. Later nominations stand.
func (pl *GangPreemption) withdraw(d *demand, f *found) {
	for uid := range f.plan.Nodes {
		if one, ok := pl.Holds.Nomination(uid); ok && one.Claim == f.claim {
			pl.Holds.DropNomination(uid)
		}
	}
	pl.releaseVictims(d, f.victims)
}

// rehearse does all that can be undone.
func (pl *GangPreemption) rehearse(ctx context.Context, d *demand, f *found) []error {
	each := func(n int, call func(int)) { pl.parallel(ctx, n, call) }
	if failed := pl.evictor.RehearseAll(ctx, f.victims, each); len(failed) > 0 {
		return failed
	}
	return pl.nominateAll(ctx, d, f)
}

// pauseAfterErrors is how long a preemptor waits after an error.
const pauseAfterErrors = time.Second

// evictAll evicts the victims, and records events on the preemptor and on the gangs that lost
// pods.
func (pl *GangPreemption) evictAll(ctx context.Context, d *demand, f *found) []error {
	if len(f.victims) == 0 {
		return nil // only nominations and holds make way
	}
	if pl.preemptorNeeds(d, f) {
		pl.recordPreempting(d, f)
	}
	var errs errorList
	units, evicted := f.units(pl.args.EvictBrokenGangs), &evictedPods{}
	pl.parallel(ctx, len(units), func(i int) {
		if !pl.victimsNeeded(d, f, units[i].pods) {
			pl.releaseVictims(d, units[i].pods)
			return
		}
		if units[i].whole {
			errs.add(pl.evictWhole(ctx, d, f, units[i], evicted))
			return
		}
		for _, pod := range units[i].pods {
			errs.add(pl.evictOne(ctx, d, f, evictions.Eviction{Pod: pod, From: f.from[pod.UID],
				Needed: func() bool { return pl.victimsNeeded(d, f, units[i].pods) }}, evicted))
		}
	})
	pl.releaseNotEvicted(d, f.victims, evicted)
	pl.recordVictims(d, f, evicted)
	logVictims(ctx, d, f, evicted)
	return errs.list()
}

// logVictims logs how many pods each gang has lost, and which single pods were evicted.
func logVictims(ctx context.Context, d *demand, f *found, evicted *evictedPods) {
	lost, why := map[string]int{}, map[string]string{}
	for _, b := range f.selection.Bundles {
		for _, pod := range b.Pods {
			if evicted.has(pod.UID) {
				lost[b.Gang.ID]++
				why[b.Gang.ID] = f.textLost(b) + ": " + f.textWorth(d, b) // a gang that goes whole lists its surplus first
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(lost)) {
		klog.FromContext(ctx).Info("Evicted pods to make room", "victim", f.gangs[id].Name, "pods", lost[id], "preemptor",
			d.String(), "why", why[id])
	}
}

// unit is a set of victims that one decision is about.
type unit struct {
	// owner is the gang that ends whole, or the pod.
	owner evictions.Owner
	whole bool
	pods  []*v1.Pod
	// stay are members that must not be evicted.
	stay map[types.UID]bool
}

// units divides the victims into units: gangs that end whole, including broken ones if these are evicted, and single
// pods.
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
		u := unit{owner: f.gangs[b.Gang.ID].Of, whole: true, stay: map[types.UID]bool{}}
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

// evictedPods is the set of pods that were evicted, or found gone. It is safe for concurrent use.
type evictedPods struct {
	done  sync.Map
	first sync.Once
}

// countVictim counts a pod that was evicted, or called off; with the first it counts the preemption.
func (e *evictedPods) countVictim(f *found) {
	e.first.Do(func() { preemptions.WithLabelValues(f.round).Inc() })
	victimsTotal.Inc()
}

func (e *evictedPods) has(pod types.UID) bool {
	_, ok := e.done.Load(pod)
	return ok
}

func (e *evictedPods) anyVictim(pods []victim.Pod) bool {
	return slices.ContainsFunc(pods, func(p victim.Pod) bool { return e.has(p.UID) })
}

// releaseVictims records that victims of a preemptor stay. It ignores pods that another preemptor has chosen since.
func (pl *GangPreemption) releaseVictims(d *demand, pods []*v1.Pod) {
	for _, pod := range pods {
		pl.Underway.ReleaseFrom(pl.holder(d), pod.UID)
	}
}

// releaseNotEvicted releases the victims that were not evicted: time may have been up before their turn.
func (pl *GangPreemption) releaseNotEvicted(d *demand, pods []*v1.Pod, evicted *evictedPods) {
	for _, pod := range pods {
		if !evicted.has(pod.UID) {
			pl.Underway.ReleaseFrom(pl.holder(d), pod.UID)
		}
	}
}

// evictOne evicts a pod for a preemptor if that is still needed once the pod is marked.
func (pl *GangPreemption) evictOne(ctx context.Context, d *demand, f *found, one evictions.Eviction,
	evicted *evictedPods) error {
	one.For, one.Note = d.leader, f.eventNote(d, d.String(), one.Pod)
	if taker, name := pl.otherPreemptor(d, f, one.Pod); taker != nil {
		one.For, one.Note = taker, f.eventNote(d, name, one.Pod)
	}
	outcome, err := pl.evictor.Evict(ctx, one)
	if err != nil {
		return err
	}
	if _, again := evicted.done.Load(one.Pod.UID); again {
		return nil // its owner was to delete it, and did not
	}
	switch outcome {
	case evictions.Ends:
		evicted.countVictim(f)
		evicted.done.Store(one.Pod.UID, true)
	case evictions.WasGone:
		evicted.done.Store(one.Pod.UID, true)
	case evictions.CalledOff:
		evicted.countVictim(f)
		pl.Holds.DropNomination(one.Pod.UID) // the preemptor comes in its place
	}
	return nil
}

// parallel calls do n times, some at a time.
func (pl *GangPreemption) parallel(ctx context.Context, n int, do func(int)) {
	parallelize.NewParallelizer(parallelize.DefaultParallelism).Until(ctx, n, do, Name)
}

// errorList collects errors of concurrent calls.
type errorList struct {
	mu   sync.Mutex
	errs []error
}

func (c *errorList) add(err error) {
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.errs = append(c.errs, err)
	}
}

func (c *errorList) list() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.errs)
}
