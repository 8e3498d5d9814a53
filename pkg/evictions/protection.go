package evictions

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// Protection protects gangs, and single pods, from eviction for some time. The zero value protects none. What is left
// of a broken gang is never protected: it is worth nothing.
type Protection struct {
	// MinRuntime returns how long the gang of a pod is protected once it runs. The gang must have its minimum running or
	// starting, or be growing.
	MinRuntime func(*v1.Pod) time.Duration
	// Cooldown is how long a gang is protected after pods of it were evicted. Evicted returns when that last happened,
	// zero for never.
	Cooldown time.Duration
	Evicted  func(Owner) time.Time
}

// protectionEnd returns the end of the protection of gangs that start together, without broken ones; zero for none.
func (c *Candidates) protectionEnd(of Owner, running []gangstate.RunningGang) (end time.Time) {
	later := func(since time.Time, length time.Duration) {
		if at := since.Add(length); length > 0 && !since.IsZero() && at.After(end) {
			end = at
		}
	}
	r := c.Protection
	for i := range running {
		f := &running[i]
		if c.broken(*f) {
			continue
		}
		if r.MinRuntime != nil && len(f.Running) > 0 {
			since := f.RunsSince()
			if f.Starts() {
				since = c.Now // its runtime has not begun
			}
			later(since, r.MinRuntime(f.Running[0].Pod))
		}
		if r.Cooldown > 0 && r.Evicted != nil && !of.IsPod() {
			later(r.Evicted(Owner{Profile: of.Profile, Gang: f.Key}), r.Cooldown)
		}
	}
	return end
}
