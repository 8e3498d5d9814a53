package gang

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core/validation"

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
)

const actionScheduling = "Scheduling"

// reading is the action of an event about a bad value. It names the key: events
// of one object that differ in their note alone are counted as one.
func reading(p gang.Problem) string { return "Reading " + topology.ShortKey(p.Key) }

// groupRef refers to the PodGroup of a gang.
func groupRef(key gang.Key, uid types.UID) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "scheduling.x-k8s.io/v1alpha1", Kind: "PodGroup", Namespace: key.Namespace, Name: key.Name, UID: uid}
}

// clip cuts a note to what the API server takes.
func clip(note string) string {
	const more = " ..."
	if len(note) <= validation.NoteLengthLimit {
		return note
	}
	return note[:validation.NoteLengthLimit-len(more)] + more
}
