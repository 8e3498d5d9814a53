// Package event tells users what happens, in events on the objects that it happens to.
//
// Every plugin has its events in one file, events.go, a constructor for each: there is what they are called and what they
// say, with its numbers. This package does not say when.
package event

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// Event is one of them.
type Event struct {
	// On is the object whose users are told; Related is another one that has to do with it, nil for none.
	On, Related runtime.Object
	// Type is Normal or Warning.
	Type string
	// Reason is a constant. Action is what was done or tried: events of one object that differ in their note alone are counted
	// as one.
	Reason, Action string
	// Note is the text.
	Note string
}

// Record hands an event to a recorder. The note is cut to what the API server takes.
func (e Event) Record(recorder events.EventRecorder) {
	recorder.Eventf(e.On, e.Related, e.Type, e.Reason, e.Action, "%s", clip(e.Note))
}

func clip(note string) string {
	const more = " ..."
	if len(note) <= validation.NoteLengthLimit {
		return note
	}
	return note[:validation.NoteLengthLimit-len(more)] + more
}

// PodGroup refers to a PodGroup, of whichever API.
func PodGroup(apiVersion, namespace, name string, uid types.UID) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: apiVersion, Kind: "PodGroup", Namespace: namespace, Name: name, UID: uid}
}
