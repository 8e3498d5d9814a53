package preemption

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// Reasons of events.
const (
	// EventPreempting is on the preemptor's leader: whom it evicts, and why those.
	EventPreempting = "Preempting"
	// EventPreempted is on a pod that is evicted: why it was this one.
	EventPreempted = "Preempted"
	// EventGangPreempted is on the PodGroup of a gang that is evicted whole.
	EventGangPreempted = "GangPreempted"
	// EventGangShrunk is on the PodGroup of a gang that loses what it can do without.
	EventGangShrunk = "GangShrunk"

	actionPreempting = "Preempting"
)

// ReasonWithdrawn is the reason of the conditions, false by then, of pods that were marked
// and run on.
const ReasonWithdrawn = "PreemptionWithdrawn"

// tellPreemptor tells the preemptor what is done for it.
func (pl *GangPreemption) tellPreemptor(d *demand, f *found) {
	safe, whole := 0, 0
	for _, b := range f.selection.Bundles {
		if b.Kind == victim.Whole {
			whole++
		} else {
			safe++
		}
	}
	pl.handle.EventRecorder().Eventf(d.leader, nil, v1.EventTypeNormal, EventPreempting, actionPreempting,
		"evicting %d pods in %s to place %d members: %d gangs or pods entirely, surplus of %d gangs; %s",
		len(f.victims), f.domain, len(f.plan.Nodes), whole, safe, f.numbers(d))
}

// tellVictims tells the PodGroups of gangs that lost pods.
func (pl *GangPreemption) tellVictims(d *demand, f *found, evicted *evictions) {
	for _, b := range f.selection.Bundles {
		if !evicted.any(b.Pods) {
			continue
		}
		reason := EventGangShrunk
		if b.Kind == victim.Whole {
			reason = EventGangPreempted
		}
		for _, one := range f.gangs[b.Gang.ID].Gangs {
			loses := b.Kind == victim.Whole || slices.ContainsFunc(b.Pods, func(p victim.Pod) bool { return p.Part == "" || p.Part == one.Key.String() })
			if one.Object == "" || !loses {
				continue
			}
			ref := &v1.ObjectReference{APIVersion: "scheduling.x-k8s.io/v1alpha1", Kind: "PodGroup", Namespace: one.Key.Namespace, Name: one.Key.Name, UID: one.Object}
			pl.handle.EventRecorder().Eventf(ref, d.leader, v1.EventTypeNormal, reason, actionPreempting, "%s by %s: %s", f.lost(b), d, f.worth(d, b))
		}
	}
}

// lost words what a gang loses.
func (f *found) lost(b victim.Bundle) string {
	n, of := len(b.Pods), len(b.Gang.Pods)
	switch {
	case b.Broken:
		return fmt.Sprintf("%d of %d pods, fewer than the minimum of %d that would be of use, %s", n, of, b.Gang.Min, f.done)
	case b.Kind == victim.Safe:
		return fmt.Sprintf("%d of %d pods, beyond the minimum of %d, %s", n, of, b.Gang.Min, f.done)
	case of == 1:
		return f.done
	default:
		return fmt.Sprintf("all %d pods, minimum %d, %s", of, b.Gang.Min, f.done)
	}
}

// worth words why it was this gang.
func (f *found) worth(d *demand, b victim.Bundle) string {
	text := fmt.Sprintf("need %s, gain %.2f", d.need, b.Gain)
	if b.Kind == victim.Whole {
		text += fmt.Sprintf(", cost %.2f, ROI %.2f", b.Cost, b.ROI)
	}
	return text
}

// note is what a victim is told.
func (f *found) note(d *demand, pod *v1.Pod) string {
	for _, b := range f.selection.Bundles {
		if slices.ContainsFunc(b.Pods, func(p victim.Pod) bool { return p.UID == pod.UID }) {
			return fmt.Sprintf("%s: %s by %s: %s", f.gangs[b.Gang.ID].Name, f.lost(b), d, f.worth(d, b))
		}
	}
	return fmt.Sprintf("evicted with its gang, which fell below its minimum (preemptor %s)", d)
}
