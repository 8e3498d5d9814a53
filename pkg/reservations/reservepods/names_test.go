package reservepods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// TestWords: what is said of the pods of a Reservation is said of the Reservation.
func TestWords(t *testing.T) {
	for pod, want := range map[string]string{
		PodName("tonight", 0): `Reservation "tonight" does not fit; gang "a/reservation_other" does`,
		PodName("other", 0):   `gang "a/reservation_tonight" does not fit; Reservation "other" does`,
		"train-0":             `gang "a/reservation_tonight" does not fit; gang "a/reservation_other" does`,
	} {
		of := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: pod}}
		if got := Words(of, `gang "a/reservation_tonight" does not fit; gang "a/reservation_other" does`); got != want {
			t.Errorf("of pod %s it says %s, want %s", pod, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	for name, c := range map[string]struct {
		reserve     bool
		reservation string
		index       int
		whole       bool
	}{
		PodName("tonight", 0):       {true, "tonight", 0, true},
		PodName("gpu.tonight", 127): {true, "gpu.tonight", 127, true},
		PodName("tonight-1", 3):     {true, "tonight-1", 3, true},
		GroupName("tonight"):        {true, "", 0, false},
		"reservation_tonight_x":     {true, "", 0, false},
		"reservation_tonight_01":    {true, "", 0, false},
		"reservation_tonight_1_2":   {true, "", 0, false},
		"reservation-tonight-0":     {},
		"tonight":                   {},
		"a-reservation_tonight_0":   {},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if got := IsReservePod(pod); got != c.reserve {
				t.Errorf("IsReservePod is %t, want %t", got, c.reserve)
			}
			reservation, index, whole := PlacementOf(pod)
			if reservation != c.reservation || index != c.index || whole != c.whole {
				t.Errorf("PlacementOf is %q, %d, %t; want %q, %d, %t", reservation, index, whole, c.reservation, c.index, c.whole)
			}
			if c.reserve && len(validation.IsDNS1123Subdomain(name)) == 0 {
				t.Error("a pod of the API server can have this name")
			}
		})
	}
}
