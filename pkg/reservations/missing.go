package reservations

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
)

// Missing returns why a pod has to wait for a Reservation that it owns: it asks for that one by name, and it holds
// nothing; or its placements are being written, and whoever created the pod may have seen them. Empty if it need not.
func (r *Registry) Missing(pod *v1.Pod) string {
	name, named := pod.Annotations[v1alpha1.ReservationAnnotation]
	if !named && r.writing.Load() == 0 || reservepods.IsReservePod(pod) {
		return ""
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !named {
		for _, e := range r.owned(pod) {
			if e.writing {
				return "the placements of its Reservation \"" + e.object.Name + "\" are being written"
			}
		}
		return ""
	}
	e := r.entries[name]
	asks := "annotation " + v1alpha1.ReservationAnnotation + " asks for Reservation \"" + name + "\""
	switch {
	case e == nil:
		return asks + ", which does not exist or has ended"
	case !slices.Contains(r.owners.Of(pod), name):
		return asks + ", of whose owners the pod is none: see its spec.owners"
	case len(e.places) == 0 && len(e.object.Status.Placements) > 0:
		return asks + ", of which all has been used"
	case len(e.places) == 0:
		return asks + ", which holds nothing yet: see its condition Scheduled"
	}
	return ""
}
