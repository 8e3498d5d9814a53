package ownergroup

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement/topology"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// Reasons of events, which are on the owner.
const (
	// EventPodGroupTaken: a PodGroup of another author has the name.
	EventPodGroupTaken = "PodGroupTaken"
	// EventPartsLeftOut: parts that wait for others cannot start in the gang.
	EventPartsLeftOut = "PartsLeftOut"

	actionGrouping = "Grouping"
	actionReading  = "Reading"
)

// toTell returns the event that users of a gang should get; nil for none. group is its PodGroup, nil for none.
func toTell(key types.NamespacedName, want ownedpodgroup.Desired, group *coscheduling.PodGroup) *status.Event {
	var e status.Event
	switch {
	case group != nil && !made(group):
		e = taken(want, group)
	case len(want.LeftOut) > 0:
		e = leftOut(want, key)
	default:
		return nil
	}
	return &e
}

func taken(want ownedpodgroup.Desired, group *coscheduling.PodGroup) status.Event {
	return status.Event{On: reference(group.Namespace, want.Owner), Type: v1.EventTypeWarning,
		Reason: EventPodGroupTaken, Action: actionGrouping,
		Note: fmt.Sprintf("PodGroup %s was not made by %s, which leaves it as it is: its minMember is %d, that of its "+
			"pods is %d; delete the PodGroup to have it made anew",
			group.Name, objects.FieldOwner, group.Spec.MinMember, want.Min)}
}

func leftOut(want ownedpodgroup.Desired, key types.NamespacedName) status.Event {
	return status.Event{On: reference(key.Namespace, want.Owner), Type: v1.EventTypeWarning,
		Reason: EventPartsLeftOut, Action: actionGrouping,
		Note: fmt.Sprintf("gang %q starts with %d members; pods of %s are scheduled alone: they wait for Jobs with more "+
			"completions than parallelism; set %s: %s to have each start as a gang",
			key, want.Min, strings.Join(want.LeftOut, ", "), v1alpha1.GangAnnotation, v1alpha1.GangOwnerPart)}
}

// ignored returns the events on an owner for its keys that have no effect; old is an earlier version, nil for none.
func ignored(kind gangspec.OwnerKind, old, owner client.Object) (list []status.Event) {
	var told []gangspec.KeyProblem
	if old != nil && old.GetUID() == owner.GetUID() {
		told = gangspec.IgnoredKeys(keys.Owner, old)
	}
	for _, problem := range gangspec.IgnoredKeys(keys.Owner, owner) {
		if !slices.Contains(told, problem) {
			list = append(list, status.Event{On: reference(owner.GetNamespace(), ownedpodgroup.ReferenceTo(kind, owner)),
				Type: v1.EventTypeWarning, Reason: keys.EventIgnored,
				Action: actionReading + " " + topology.ShortKey(problem.Key), Note: problem.String()})
		}
	}
	return list
}

func reference(namespace string, owner metav1.OwnerReference) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: namespace,
		Name: owner.Name, UID: owner.UID}
}

// tell records an event of a gang, unless it repeats the gang's last one. If e is nil, the last one is forgotten.
func (r *reconciler) tell(key types.NamespacedName, e *status.Event) {
	if e == nil {
		r.told.Delete(key)
	} else if last, _ := r.told.Swap(key, e.Reason+e.Note); last != e.Reason+e.Note {
		e.Record(r.recorder)
	}
}
