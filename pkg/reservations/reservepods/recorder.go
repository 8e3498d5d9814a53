package reservepods

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

// Recorder returns a recorder whose events about reserve pods are about their Reservations: the API server has no such
// pods. All other events go to inner.
func Recorder(inner events.EventRecorderLogger) events.EventRecorderLogger { return &recorder{inner} }

type recorder struct{ inner events.EventRecorderLogger }

// Eventf records an event.
func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	text := fmt.Sprintf(note, args...)
	if pod, ok := regarding.(*v1.Pod); ok && pod != nil {
		text = Words(pod, text)
	}
	r.inner.Eventf(known(regarding), known(related), kind, reason, action, "%s", text)
}

// WithLogger returns a recorder with another logger.
func (r *recorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	return &recorder{r.inner.WithLogger(logger)}
}

// known returns what the API server knows of an object: of a reserve pod, its Reservation.
func known(object runtime.Object) runtime.Object {
	if pod, ok := object.(*v1.Pod); ok && pod != nil {
		if reservation := reservationOf(pod); reservation != nil {
			return reservation
		}
	}
	return object
}
