package reservationstate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Whatever spec.expires is, a Reservation that has it comes to its end: also if that is the zero time, which other code
// takes for none.
func TestExpiryOfLongAgo(t *testing.T) {
	made := time.Date(2027, 1, 31, 6, 0, 0, 0, time.UTC)
	for _, ttl := range []time.Duration{0, time.Hour} {
		for _, expires := range []time.Time{{}, time.Unix(0, 0), made.Add(-time.Second)} {
			r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
			r.Spec.TTL, r.Spec.Expires = &metav1.Duration{Duration: ttl}, &metav1.Time{Time: expires}
			at, field := expiry(r)
			if at.IsZero() || at.After(made) || field != "expires" || !expired(r, made) {
				t.Errorf("with a ttl of %s and expires at %s it ends at %s by %q", ttl, expires, at, field)
			}
		}
	}
}
