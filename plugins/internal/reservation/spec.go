package reservation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// defaultTTL is the default of the schema, for objects that did not get it from the API server.
const defaultTTL = 24 * time.Hour

// Replicas returns how many placements a Reservation asks for.
func Replicas(r *v1alpha1.Reservation) int { return int(max(r.Spec.Replicas, 1)) }

// Once reports whether each placement is used once.
func Once(r *v1alpha1.Reservation) bool { return r.Spec.AllocateOnce == nil || *r.Spec.AllocateOnce }

// Promised returns the nodes that are promised to placements without a place yet, by index.
func Promised(r *v1alpha1.Reservation) map[int32]string {
	promised := map[int32]string{}
	for i, node := range r.Spec.NodeNames {
		promised[int32(i)] = node
	}
	for _, p := range r.Status.Placements {
		delete(promised, p.Index)
	}
	return promised
}

// Namespace returns the namespace of the reserve pods, and of the pods that a selector of owners
// without a namespace selects.
func Namespace(r *v1alpha1.Reservation) string {
	if namespace := r.Spec.Template.Namespace; namespace != "" {
		return namespace
	}
	return metav1.NamespaceDefault
}

// Ended reports whether a phase is final. Nothing is held for a Reservation that has ended.
func Ended(phase v1alpha1.ReservationPhase) bool {
	return phase == v1alpha1.ReservationSucceeded || phase == v1alpha1.ReservationFailed
}

// Start returns when a place for a Reservation begins to be sought.
func Start(r *v1alpha1.Reservation) time.Time {
	start := r.CreationTimestamp.Time
	if at := r.Spec.StartTime; at != nil && at.After(start) {
		start = at.Time
	}
	return start
}

// Expiry returns when a Reservation ends, used or not; the zero time if it does not.
func Expiry(r *v1alpha1.Reservation) time.Time {
	at, _ := expiry(r)
	return at
}

// expiry also returns the name of the field that says so.
func expiry(r *v1alpha1.Reservation) (at time.Time, field string) {
	ttl := defaultTTL
	if r.Spec.TTL != nil {
		ttl = r.Spec.TTL.Duration
	}
	if ttl > 0 {
		at, field = Start(r).Add(ttl), "ttl"
	}
	if expires := r.Spec.Expires; expires != nil && (at.IsZero() || expires.Time.Before(at)) {
		at, field = expires.Time, "expires"
	}
	return at, field
}

// expired reports whether a Reservation has come to its expiry.
func expired(r *v1alpha1.Reservation, now time.Time) bool {
	at := Expiry(r)
	return !at.IsZero() && !now.Before(at)
}
