package ownergroup

import (
	"fmt"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/event"
	"github.com/lockstep-sh/lockstep/plugins/gang/podgroup"
)

// Reasons of events, which are on the owner.
const (
	// EventPodGroupTaken: a PodGroup that somebody else made has the name.
	EventPodGroupTaken = "PodGroupTaken"
	// EventPartsLeftOut: not all that waits for others can start as a gang.
	EventPartsLeftOut = "PartsLeftOut"

	actionGrouping = "Grouping"
)

// toTell is what users have to know of a gang; nil for nothing. group is its PodGroup, nil for none.
func toTell(key types.NamespacedName, want desired, group *podgroup.PodGroup) *event.Event {
	var e event.Event
	switch {
	case group != nil && !made(group):
		e = taken(want, group)
	case len(want.leftOut) > 0:
		e = leftOut(want, key)
	default:
		return nil
	}
	return &e
}

func taken(want desired, group *podgroup.PodGroup) event.Event {
	return event.Event{On: reference(group.Namespace, want.owner), Type: v1.EventTypeWarning, Reason: EventPodGroupTaken, Action: actionGrouping,
		Note: fmt.Sprintf("PodGroup %s was not made by %s, which leaves it as it is: its minMember is %d, that of its pods is %d; delete the PodGroup to have it made anew",
			group.Name, FieldOwner, group.Spec.MinMember, want.min)}
}

func leftOut(want desired, key types.NamespacedName) event.Event {
	return event.Event{On: reference(key.Namespace, want.owner), Type: v1.EventTypeWarning, Reason: EventPartsLeftOut, Action: actionGrouping,
		Note: fmt.Sprintf("gang %q starts with %d members; pods of %s are scheduled alone: they wait for Jobs with more completions than parallelism; set %s: %s to have each start as a gang",
			key, want.min, strings.Join(want.leftOut, ", "), v1alpha1.GangAnnotation, v1alpha1.GangOwnerPart)}
}

func reference(namespace string, owner metav1.OwnerReference) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: namespace, Name: owner.Name, UID: owner.UID}
}

// tell says what is to be said of a gang, if that is news; nothing where it is nil.
func (r *reconciler) tell(key types.NamespacedName, e *event.Event) {
	if e == nil {
		r.told.forget(key)
	} else if r.told.isNews(key, e.Reason+e.Note) {
		e.Record(r.recorder)
	}
}

// told is what was said last of a gang, so that nothing is repeated. It is safe for concurrent use.
type told struct {
	mu   sync.Mutex
	last map[types.NamespacedName]string
}

// isNews notes what is said of a gang now, and reports whether that is another thing than before.
func (t *told) isNews(key types.NamespacedName, note string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[key] == note {
		return false
	}
	if t.last == nil {
		t.last = map[types.NamespacedName]string{}
	}
	t.last[key] = note
	return true
}

func (t *told) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.last, key)
}
