package reservations

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// Serves reports whether the pods of a profile use Reservations.
func (r *Registry) Serves(profile string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	_, serves := r.profiles[profile]
	return serves
}

// AwaitsReservation reports whether a pod that does not fit waits for a Reservation, so that more nodes would not help
// it: it names one, or those it owns are being written.
func (r *Registry) AwaitsReservation(pod *v1.Pod) bool {
	_, named := reservationstate.NamedBy(pod)
	return (named || r.Missing(pod) != "") && r.Serves(pod.Spec.SchedulerName)
}

// Missing returns why a pod has to wait, or "": the Reservation that it names has nothing for it, or the placements of
// one that it owns are being written. The creator of the pod may have seen them in the status already.
func (r *Registry) Missing(pod *v1.Pod) string {
	name, named := reservationstate.NamedBy(pod)
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
		return asks + ": the pod matches none of its spec.owners"
	case len(e.places) == 0 && len(e.object.Status.Placements) > 0:
		return asks + ", which is fully used"
	case len(e.places) == 0 && e.object.Spec.StartTime != nil:
		return asks + ", which holds nothing before its spec.startTime, " +
			e.object.Spec.StartTime.UTC().Format(time.RFC3339) + ": from then on see its condition Scheduled"
	case len(e.places) == 0:
		return asks + ", which holds nothing yet: see its condition Scheduled"
	}
	return ""
}
