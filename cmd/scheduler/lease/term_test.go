package lease

import (
	"testing"
	"time"
)

func TestTerm(t *testing.T) {
	at := func(d time.Duration) Instant { return Instant(time.Hour + d) }
	ten := NewTerm(at(0), 10*time.Second)
	for sentence, c := range map[string]struct {
		term Term
		now  Instant
		want time.Duration
	}{
		"a lease that was never held is not held":           {Term{}, at(0), -time.Hour},
		"nor is it at the first moment after the start":     {Term{}, 0, 0},
		"a lease of ten seconds is held for nine":           {ten, at(0), 9 * time.Second},
		"counted from when the renewal was sent":            {ten, at(4 * time.Second), 5 * time.Second},
		"its last moment is before the end":                 {ten, at(9*time.Second - 1), 1},
		"at its end it is not held":                         {ten, at(9 * time.Second), 0},
		"time that was slept through counts":                {ten, at(time.Minute), -51 * time.Second},
		"a renewal extends it":                              {ten.Extend(NewTerm(at(5*time.Second), 10*time.Second)), at(9 * time.Second), 5 * time.Second},
		"one whose answer is older than another's does not": {NewTerm(at(5*time.Second), 10*time.Second).Extend(ten), at(9 * time.Second), 5 * time.Second},
		"a lease of a second is held for less":              {NewTerm(at(0), time.Second), at(0), 900 * time.Millisecond},
		"a lease of no length is not held":                  {NewTerm(at(0), 0), at(0), 0},
	} {
		if got := c.term.Left(c.now); got != c.want {
			t.Errorf("%s: %s left, want %s", sentence, got, c.want)
		}
	}
}

// TestBootTime: the clock goes on, and reads the same as the kernel's own account of it.
func TestBootTime(t *testing.T) {
	before := bootTime()
	time.Sleep(2 * time.Millisecond)
	if d := time.Duration(bootTime() - before); d < 2*time.Millisecond || d > time.Minute {
		t.Errorf("2ms took %s by the boot clock", d)
	}
}
