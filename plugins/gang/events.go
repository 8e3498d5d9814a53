package gang

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/event"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/topology"
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

// badValue returns the event on the pod or PodGroup that has the value. Its action names the key.
func badValue(r gang.Report) event.Event {
	var on runtime.Object = event.PodGroup(r.Object.Kind.APIVersion(), r.Gang.Namespace, r.Gang.Name, r.Object.UID)
	if r.Pod != nil {
		on = r.Pod
	}
	return event.Event{On: on, Type: v1.EventTypeWarning, Reason: EventBadValue, Action: "Reading " + topology.ShortKey(r.Problem.Key), Note: r.Problem.String()}
}

// waits returns the event for why a gang waits, on its PodGroup, or where there is none on the first member that waits.
func waits(e gang.Explanation) event.Event {
	var on runtime.Object
	if e.HasObject {
		on = event.PodGroup(e.Object.Kind.APIVersion(), e.Gang.Namespace, e.Gang.Name, e.Object.UID)
	} else {
		on = e.Pending[0]
	}
	return event.Event{On: on, Type: v1.EventTypeWarning, Reason: e.Reason, Action: actionScheduling, Note: e.Message}
}

// timedOut returns the event on a member that was marked.
func timedOut(pod *v1.Pod) event.Event {
	return event.Event{On: pod, Type: v1.EventTypeWarning, Reason: EventTimedOut, Action: actionScheduling,
		Note: fmt.Sprintf("the gang did not reach its minimum in time; remove the annotation %s to have the pod scheduled again", v1alpha1.TimeoutAnnotation)}
}
