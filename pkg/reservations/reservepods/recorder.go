package reservepods

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
)

// Recorder returns a recorder whose events about reserve pods are about what reference returns for
// them: the API server has no such pods. Where it returns nil, there is no event. All other events
// go to inner.
func Recorder(inner events.EventRecorderLogger, reference func(*v1.Pod) runtime.Object) events.EventRecorderLogger {
	return &recorder{inner: inner, reference: reference}
}

type recorder struct {
	inner     events.EventRecorderLogger
	reference func(*v1.Pod) runtime.Object
}

// Eventf records an event.
func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	regarding, known := r.resolve(regarding)
	if !known {
		return
	}
	related, _ = r.resolve(related)
	r.inner.Eventf(regarding, related, kind, reason, action, note, args...)
}

// WithLogger returns a recorder with another logger.
func (r *recorder) WithLogger(logger klog.Logger) events.EventRecorderLogger {
	return &recorder{inner: r.inner.WithLogger(logger), reference: r.reference}
}

// resolve returns what an event is to be about instead of an object; false if there is nothing.
func (r *recorder) resolve(object runtime.Object) (runtime.Object, bool) {
	pod, ok := object.(*v1.Pod)
	if !ok || pod == nil || !IsReservePod(pod) {
		return object, true
	}
	instead := r.reference(pod)
	return instead, instead != nil
}
