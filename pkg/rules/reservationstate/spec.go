package reservationstate

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Replicas returns how many placements a Reservation asks for.
func Replicas(r *v1alpha1.Reservation) int { return int(max(r.Spec.Replicas, 1)) }

// IsSingleUse reports whether each placement is used once.
func IsSingleUse(r *v1alpha1.Reservation) bool {
	return r.Spec.AllocateOnce == nil || *r.Spec.AllocateOnce
}

// Missing lists the placements without a place.
func Missing(r *v1alpha1.Reservation) (missing []int32) {
	placed := map[int32]bool{}
	for _, p := range r.Status.Placements {
		placed[p.Index] = true
	}
	for index := range int32(Replicas(r)) {
		if !placed[index] {
			missing = append(missing, index)
		}
	}
	return missing
}

// Namespace returns the namespace of the reserve pods, and of the pods that a selector of owners
// without a namespace selects.
func Namespace(r *v1alpha1.Reservation) string {
	return cmp.Or(r.Spec.Template.Namespace, metav1.NamespaceDefault)
}

// SchedulerName returns the scheduler that looks for the places of a Reservation.
func SchedulerName(r *v1alpha1.Reservation) string {
	return cmp.Or(r.Spec.Template.Spec.SchedulerName, DefaultScheduler)
}

// OpenTo reports whether pods of a namespace may use a Reservation: its owners must name the namespace. A pod's creator
// can forge everything else that makes it an owner: labels, owner references, the allocation annotation.
func OpenTo(r *v1alpha1.Reservation, namespace string) bool {
	return slices.ContainsFunc(r.Spec.Owners, func(o v1alpha1.ReservationOwner) bool {
		group, _, _ := strings.Cut(o.PodGroup, "/")
		return (o.Object == nil || o.Object.Namespace == namespace) &&
			(o.Controller == nil || o.Controller.Namespace == namespace) &&
			(o.LabelSelector == nil || cmp.Or(o.Namespace, Namespace(r)) == namespace) &&
			(o.PodGroup == "" || group == namespace)
	})
}

// Uses reports whether a pod that says it uses a placement may: the Reservation is open to its namespace, or the status
// lists the pod, which used it before the owners were changed. Only the controller writes the list.
func Uses(r *v1alpha1.Reservation, namespace string, pod types.UID, index int32) bool {
	return OpenTo(r, namespace) || slices.ContainsFunc(r.Status.CurrentOwners, func(c v1alpha1.ReservationConsumer) bool {
		return c.UID == pod && c.Index == index
	})
}

// NamedBy returns the Reservation that a pod names, and goes to or nowhere. An empty name counts: it is that of none.
func NamedBy(pod *v1.Pod) (name string, named bool) {
	name, named = pod.Annotations[v1alpha1.ReservationAnnotation]
	return name, named
}

// Ended reports whether a phase is final. Nothing is held for a Reservation that has ended.
func Ended(phase v1alpha1.ReservationPhase) bool {
	return phase == v1alpha1.ReservationSucceeded || phase == v1alpha1.ReservationFailed
}

// Held returns the placements of a Reservation of which something is held, used or not.
func Held(r *v1alpha1.Reservation) []v1alpha1.ReservationPlacement {
	if Ended(r.Status.Phase) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.Status.Placements), func(p v1alpha1.ReservationPlacement) bool {
		return p.Spent
	})
}
