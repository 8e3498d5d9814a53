package preemption

import (
	"testing"
	"time"
)

// TestPauses: a decision that is not carried out is made again at once, and then after ever longer pauses, until one is.
func TestPauses(t *testing.T) {
	var p pauses
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{0, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		if got := p.withdrawn("a", now, 0); got != want {
			t.Errorf("pause %d: %s, want %s", i, got, want)
		}
		if left, withdrawn := p.left("a", now); left != want || !withdrawn {
			t.Errorf("pause %d: %s is left, withdrawn %v, want %s", i, left, withdrawn, want)
		}
	}
	if got := p.withdrawn("a", now, time.Second); got != 8*time.Second {
		t.Errorf("with errors: %s, want 8s", got)
	}
	for range 20 {
		p.withdrawn("a", now, time.Second)
	}
	if left, _ := p.left("a", now); left != longestPause {
		t.Errorf("in the end: %s, want %s", left, longestPause)
	}
	p.forget("a")
	if left, withdrawn := p.left("a", now); left > 0 || withdrawn {
		t.Errorf("once room is made: %s is left", left)
	}
	p.failed("b", now, time.Second)
	if left, withdrawn := p.left("b", now); left != pauseShare*time.Second || withdrawn {
		t.Errorf("after a search that found nothing: %s, withdrawn %v, want %s", left, withdrawn, pauseShare*time.Second)
	}
	p.failed("c", now.Add(2*longestPause), time.Millisecond)
	if len(p.groups) != 1 {
		t.Errorf("%d preemptors are remembered, want the one that came", len(p.groups))
	}
}
