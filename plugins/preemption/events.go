package preemption

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/event"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/victim"
)

// Reasons of events.
const (
	// EventPreempting is on the preemptor's leader: which pods it evicts, and why those.
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

// preempting returns the event that says how many pods are evicted in how many gangs, and
// where.
func preempting(d *demand, f *found) event.Event {
	safe, whole := 0, 0
	for _, b := range f.selection.Bundles {
		if b.Kind == victim.Whole {
			whole++
		} else {
			safe++
		}
	}
	return event.Event{On: d.leader, Type: v1.EventTypeNormal, Reason: EventPreempting, Action: actionPreempting,
		Note: fmt.Sprintf("evicting %d pods in %s to place %d members: %d gangs or pods entirely, surplus of %d gangs; %s",
			len(f.victims), f.domain, len(f.plan.Nodes), whole, safe, f.numbers(d))}
}

// preempted returns the event that says why a pod is evicted, and for which preemptor if
// that is known.
func preempted(pod, preemptor *v1.Pod, note string) event.Event {
	e := event.Event{On: pod, Type: v1.EventTypeNormal, Reason: EventPreempted, Action: actionPreempting, Note: note}
	if preemptor != nil { // a nil pod would be an object
		e.Related = preemptor
	}
	return e
}

// gangLost returns the event that says how many pods a gang of a bundle loses, and for
// which preemptor.
func gangLost(d *demand, f *found, b victim.Bundle, of gang.Footprint) event.Event {
	reason := EventGangShrunk
	if b.Kind == victim.Whole {
		reason = EventGangPreempted
	}
	return event.Event{On: event.PodGroup(of.Object.Kind.APIVersion(), of.Key.Namespace, of.Key.Name, of.Object.UID), Related: d.leader, Type: v1.EventTypeNormal,
		Reason: reason, Action: actionPreempting, Note: fmt.Sprintf("%s by %s: %s", f.lost(b), d, f.worth(d, b))}
}
