package preemption

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	stockpreemption "k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
)

// mustWait returns why a preemptor must not search now; empty if it may. It delays evictions by a preemptor whose
// preemption delay has not passed. One that pauses may search for the places of pods that began to end since its last
// search, as those behind it in order may.
func (pl *GangPreemption) mustWait(d *demand) string {
	if pl.victimsEnding(d) || pl.preemptedPodsEnding(d) {
		return msgWaiting
	}
	now := pl.clock.Now()
	d.delayEvictions(d.attempt.EvictsIn(now), msgDelay)
	pause := pl.pauses.current(d.attempt.Group, now)
	left := pause.until.Sub(now)
	if left <= 0 || pause.why == waitsForEnding && !pl.Holds.Nominated(pl.holder(d)) {
		return ""
	}
	if pl.ending.anyBeside(pause.ending, pl.fw.SnapshotSharedLister().NodeInfos()) {
		d.delayEvictions(left, pause.message)
		d.pauses = true
		return ""
	}
	pl.retryAfter(d.leader, left) // what has happened since that search may have helped
	return pause.message
}

// recordEnding records for the pause of a preemptor which pods it knows to be ending: those in its search, or all where
// it did not get that far.
func (pl *GangPreemption) recordEnding(d *demand) {
	if d.ending == nil {
		d.ending = pl.ending.all()
	}
	pl.pauses.recordEnding(d.attempt.Group, d.ending)
}

// devicesFreeing reports whether a preemptor holds places whose devices are about to become free.
func (pl *GangPreemption) devicesFreeing(d *demand) bool {
	claims := slices.ContainsFunc(d.gang.Pods, func(pod *v1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 })
	holder := pl.holder(d)
	return claims && pl.Holds.Nominated(holder) && pl.clock.Since(pl.Underway.LastFreed(holder)) < devicesFreeingFor
}

// continues reports whether a preemptor continues an earlier decision: places are held for it, its victims have not all
// ended, or its last decision was aborted and it decides again.
func (pl *GangPreemption) continues(d *demand) bool {
	pause := pl.pauses.current(d.attempt.Group, pl.clock.Now())
	return pause.why == aborted || pl.Holds.Nominated(pl.holder(d)) || pl.Underway.Victims(pl.holder(d)) > 0
}

// isNominatedTo reports whether places are held for a preemptor on all these nodes.
func (pl *GangPreemption) isNominatedTo(d *demand, nodes []string) bool {
	holder := pl.holder(d)
	return pl.Holds.Nominated(holder) && sets.New(pl.Holds.NodesOf(holder)...).HasAll(nodes...)
}

// victimsEnding reports whether victims of the preemptor are still ending, whose room is held for it. It drops victims
// that do not end, or whose node is gone: the preemptor looks for others.
func (pl *GangPreemption) victimsEnding(d *demand) bool {
	holder, nodes := pl.holder(d), pl.fw.SnapshotSharedLister().NodeInfos()
	if pl.Underway.Victims(holder) == 0 || !pl.Holds.Nominated(holder) {
		return false
	}
	pl.evictor.ReleaseLost(pl.Underway.VictimsOf(holder), func(pod *v1.Pod) bool {
		_, err := nodes.Get(pod.Spec.NodeName)
		return pod.Spec.NodeName != "" && (err != nil || evictions.Stuck(pod, pl.clock.Now()))
	})
	return pl.Underway.Victims(holder) > 0
}

// preemptedPodsEnding reports whether preempted pods are still ending on the nodes that the preemptor is nominated to,
// whichever process evicted them.
func (pl *GangPreemption) preemptedPodsEnding(d *demand) bool {
	nodes := pl.fw.SnapshotSharedLister().NodeInfos()
	seen := map[string]bool{}
	for _, pod := range d.gang.Pods {
		name := pod.Status.NominatedNodeName
		if name == "" || seen[name] {
			continue
		}
		seen[name] = true
		info, err := nodes.Get(name)
		if err != nil {
			continue // the node is gone
		}
		for _, other := range info.GetPods() {
			if p := other.GetPod(); stockpreemption.PodTerminatingByPreemption(p) && !evictions.Stuck(p, pl.clock.Now()) {
				return true
			}
		}
	}
	return false
}
