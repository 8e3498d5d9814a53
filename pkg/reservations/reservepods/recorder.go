package reservepods

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// Recorder returns a recorder whose events about reserve pods are about their Reservations: the API server has no such
// pods. That a Reservation waits on nodes that it names is no warning: what becomes free there is promised to it. All
// other events go to inner.
func Recorder(inner events.EventRecorderLogger) events.EventRecorderLogger { return &recorder{inner} }

type recorder struct{ inner events.EventRecorderLogger }

// Eventf records an event.
func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	r.AnnotatedEventf(regarding, related, nil, kind, reason, action, note, args...)
}

// AnnotatedEventf records an event with annotations, which are lost if the inner recorder writes none.
func (r *recorder) AnnotatedEventf(regarding, related runtime.Object, annotations map[string]string,
	kind, reason, action, note string, args ...any) {
	text := fmt.Sprintf(note, args...)
	if pod, ok := regarding.(*v1.Pod); ok && pod != nil {
		text = Words(pod, text)
		if waitsForOthers.Has(reason) && IsReservePod(pod) && namesNode(pod) {
			kind = v1.EventTypeNormal
		}
	}
	if inner, ok := r.inner.(events.AnnotatedEventRecorder); ok {
		inner.AnnotatedEventf(known(regarding), known(related), annotations, kind, reason, action, "%s", text)
		return
	}
	r.inner.Eventf(known(regarding), known(related), kind, reason, action, "%s", text)
}

// waitsForOthers are the reasons of events for pods that start once others have gone; the first is kube-scheduler's.
var waitsForOthers = sets.New("FailedScheduling", v1.PodReasonUnschedulable, string(queueing.Capability),
	string(queueing.Behind))

// namesNode reports whether a pod may run only on nodes that it names.
func namesNode(pod *v1.Pod) bool {
	affinity := pod.Spec.Affinity
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	return slices.ContainsFunc(affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms,
		func(term v1.NodeSelectorTerm) bool { return len(term.MatchFields) > 0 })
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
