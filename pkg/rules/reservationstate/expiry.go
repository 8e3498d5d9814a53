package reservationstate

import (
	"time"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// defaultTTL is the schema's default, for objects that did not get it from the API server.
const defaultTTL = 24 * time.Hour

// Start returns when the search for a place begins.
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

// expiry also returns the name of the field that determines it.
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
		if at.IsZero() {
			at = time.Unix(0, 0) // the zero time means no end
		}
	}
	return at, field
}

// expired reports whether a Reservation has expired.
func expired(r *v1alpha1.Reservation, now time.Time) bool {
	at := Expiry(r)
	return !at.IsZero() && !now.Before(at)
}

// WhyOver returns why a Reservation holds nothing any longer; empty if it holds something, or may.
func WhyOver(r *v1alpha1.Reservation, now time.Time) string {
	switch {
	case Ended(r.Status.Phase):
		return "it has ended: " + string(r.Status.Phase)
	case r.DeletionTimestamp != nil:
		return "it is being deleted"
	case expired(r, now):
		return "it has expired"
	}
	return ""
}
