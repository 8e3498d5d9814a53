package gang

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/waitreason"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// Reasons of events. Those that explain why a gang waits carry the reason of the
// condition.
const (
	// EventBadValue: an annotation or field of a gang could not be used.
	EventBadValue = "BadGangValue"
	// EventTimedOut: the wait time of the gang ran out.
	EventTimedOut = "GangTimedOut"

	actionScheduling = "Scheduling"
)

// badValue returns the event on the pod or PodGroup that has the value, or the key that is ignored. Its action names
// the key.
func badValue(r complaint) status.Event {
	var on runtime.Object = status.PodGroupReference(r.Object.Kind.APIVersion(), r.Gang.Namespace, r.Gang.Name,
		r.Object.UID)
	if r.Pod != nil {
		on = r.Pod
	}
	note := r.Problem.String()
	if r.more > 0 {
		note += fmt.Sprintf("; %d more pods of its gang or controller have it, too", r.more)
	}
	reason := EventBadValue
	if r.Problem.Ignored != "" {
		reason = keys.EventIgnored
	}
	return status.Event{
		On: on, Type: v1.EventTypeWarning, Reason: reason, Action: "Reading " + topology.ShortKey(r.Problem.Key), Note: note,
	}
}

// waits returns the event for why a gang waits, on its PodGroup, or where there is none on the first member that waits.
func waits(e gangstate.Explanation) status.Event {
	var on runtime.Object
	if e.Object.UID != "" {
		on = status.PodGroupReference(e.Object.Kind.APIVersion(), e.Gang.Namespace, e.Gang.Name, e.Object.UID)
	} else {
		on = e.Pending[0]
	}
	kind := v1.EventTypeWarning
	if waitreason.PassesByItself(e.Reason) {
		kind = v1.EventTypeNormal
	}
	return status.Event{On: on, Type: kind, Reason: e.Reason, Action: actionScheduling, Note: e.Message}
}

// timedOut returns the event on a member that was marked.
func timedOut(pod *v1.Pod) status.Event {
	return status.Event{On: pod, Type: v1.EventTypeWarning, Reason: EventTimedOut, Action: actionScheduling,
		Note: fmt.Sprintf("the gang did not reach its minimum in time; "+
			"remove the annotation %s to have the pod scheduled again", v1alpha1.TimeoutAnnotation)}
}
