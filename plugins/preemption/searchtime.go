package preemption

import (
	"time"

	"k8s.io/utils/clock"
)

// timer measures the time of a search. Looks take none of it: the passes over all pods and nodes with which a round
// begins. They cost the same in every search, and one that ended for them would have to begin there again.
type timer struct {
	clock clock.PassiveClock
	// timeout is how long the search may take beside its looks, and deadline when that time is up: each look puts it off.
	timeout  time.Duration
	deadline time.Time
	// lookBegan is when the running look began; zero for none.
	lookBegan time.Time
	// cutShort: the search ended for want of time.
	cutShort bool
}

// startTimer begins a search.
func (t *timer) startTimer(clock clock.PassiveClock, timeout time.Duration) {
	*t = timer{clock: clock, timeout: timeout, deadline: clock.Now().Add(timeout)}
}

// timeIsUp reports whether the search must end early.
func (t *timer) timeIsUp() bool {
	t.cutShort = t.cutShort || !t.clock.Now().Before(t.deadline)
	return t.cutShort
}

// beginLook begins a look, unless one is running.
func (t *timer) beginLook() {
	if t.lookBegan.IsZero() {
		t.lookBegan = t.clock.Now()
	}
}

// endLook ends the running look, if any, and puts the deadline off for as long as it took.
func (t *timer) endLook() {
	if !t.lookBegan.IsZero() {
		t.deadline = t.deadline.Add(t.clock.Since(t.lookBegan))
		t.lookBegan = time.Time{}
	}
}
