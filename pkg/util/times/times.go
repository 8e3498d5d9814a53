// Package times compares times, and brings them into the form of the API.
package times

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stored returns a time as the API stores it, in whole seconds.
func Stored(at time.Time) *metav1.Time { return new(metav1.NewTime(at).Rfc3339Copy()) }

// Earlier returns the earlier of two times, of which zero is not known, or never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
