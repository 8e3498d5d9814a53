package gangstate

import (
	"testing"
	"time"
)

// TestMissesAreForgotten: while nothing changes, there is at most one for each group.
func TestMissesAreForgotten(t *testing.T) {
	c := line(t, 5, func(i int) int { return 200 - i })
	for minute := range 100 {
		c.pass(time.Minute)
		if n := len(c.s.pump.misses); n > len(c.s.pump.resting) {
			t.Fatalf("after %d minutes %d misses of %d groups are kept", minute, n, len(c.s.pump.resting))
		}
	}
	if tried := c.tries(); tried < 400 {
		t.Errorf("%d attempts were made", tried)
	}
}
