package eviction

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// Respite is for how long gangs, and pods in none, are left alone. The zero value protects none of them. What is left of a broken
// gang has none: it is worth nothing.
type Respite struct {
	// MinRuntime returns how long the gang of a pod is left alone once it runs. It has to have its minimum running or on its way, or to grow.
	MinRuntime func(*v1.Pod) time.Duration
	// Cooldown is how long a gang is left alone after pods of it were evicted; Evicted returns when that last happened, zero for never.
	Cooldown time.Duration
	Evicted  func(Owner) time.Time
}

// until returns the end of the respite of gangs that start together, except those that are broken; zero for none.
func (r *Respite) until(of Owner, footprints []gang.Footprint, broken func(gang.Footprint) bool, now time.Time) time.Time {
	var end time.Time
	later := func(since time.Time, length time.Duration) {
		if at := since.Add(length); length > 0 && !since.IsZero() && at.After(end) {
			end = at
		}
	}
	for i := range footprints {
		f := &footprints[i]
		if broken(*f) {
			continue
		}
		if r.MinRuntime != nil && len(f.Running) > 0 {
			since := f.RunsSince()
			if f.Starts() {
				since = now // its runtime has not begun
			}
			later(since, r.MinRuntime(f.Running[0].Pod))
		}
		if r.Evicted != nil && !of.IsPod() {
			later(r.Evicted(Owner{Profile: of.Profile, Gang: f.Key}), r.Cooldown)
		}
	}
	return end
}
