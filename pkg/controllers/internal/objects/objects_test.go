package objects

import (
	"testing"
	"time"
)

// TestUntil: what waits for a time is looked at again, also if that has come by now, and while clocks are set.
func TestUntil(t *testing.T) {
	now := time.Unix(0, 0)
	for in, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Millisecond, 0: time.Millisecond, time.Second: time.Second, time.Hour: 10 * time.Minute,
	} {
		if got := Until(now.Add(in), now); got != want {
			t.Errorf("of a time in %s: after %s, want %s", in, got, want)
		}
	}
}
