package status

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// Event is one event.
type Event struct {
	// On is the object whose users get the event; Related is another object that it concerns, nil for none.
	On, Related runtime.Object
	// Type is Normal or Warning.
	Type string
	// Reason is a constant. Action is what was done or tried: events of one object that differ in their note alone are
	// counted as one.
	Reason, Action string
	// Note is the text, for people. What programs need of it is in Annotations, those of the event.
	Note        string
	Annotations map[string]string
}

// Record hands an event to a recorder. The note is cut to what the API server takes.
func (e Event) Record(recorder events.EventRecorder) {
	note := words.Clip(e.Note, validation.NoteLengthLimit)
	if annotating, ok := recorder.(events.AnnotatedEventRecorder); ok {
		annotating.AnnotatedEventf(e.On, e.Related, e.Annotations, e.Type, e.Reason, e.Action, "%s", note)
		return
	}
	recorder.Eventf(e.On, e.Related, e.Type, e.Reason, e.Action, "%s", note)
}

// PodGroupReference returns a reference to a PodGroup, of either API.
func PodGroupReference(apiVersion, namespace, name string, uid types.UID) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: apiVersion, Kind: "PodGroup", Namespace: namespace, Name: name, UID: uid}
}
