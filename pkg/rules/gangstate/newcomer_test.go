package gangstate

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// behind returns a cluster with a group that does not fit, costs a second to plan and is always
// due, since something happens every second.
func behind(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, map[string]int{"n": 2})
	c.cost, c.dear = time.Second, "a/e"
	c.bring(podsNamed("e", 4, of("e"), needs(4), sized(4), aged(time.Hour))...)
	return c
}

// happen lets something happen every second until a pod is bound.
func (c *cluster) happen(t *testing.T, until string, most time.Duration) time.Duration {
	t.Helper()
	came := c.now
	for next := c.now; c.at[types.UID(until)] != bound; c.now = c.now.Add(10 * time.Millisecond) {
		if c.now.Sub(came) > most {
			t.Fatalf("%s is not bound after %s", until, most)
		}
		if !c.now.Before(next) {
			next = next.Add(time.Second)
			c.turns.RecordChange(turns.Freed)
		}
		c.tick()
		c.run()
	}
	return c.now.Sub(came)
}

// TestNewcomersBehindWhatDoesNotFit: whenever a gang comes that fits, it does not wait longer
// for one that does not than for the rest of its pause, of 4 s, and one attempt.
func TestNewcomersBehindWhatDoesNotFit(t *testing.T) {
	for after := time.Duration(0); after < 6*time.Second; after += 300 * time.Millisecond {
		c := behind(t)
		c.churn(time.Second, 10*time.Second+after, c.cost)
		for _, name := range []string{"x", "y"} {
			c.add(podOf(name, of(name), needs(1)))
		}
		if took := c.happen(t, "y", time.Minute); took > 6*time.Second {
			t.Errorf("those that came after %s started after %s", after, took)
		}
	}
}

// TestNewcomersDoNotAddUp: a gang that waits is not kept from what becomes free by the
// first attempts of many others.
func TestNewcomersDoNotAddUp(t *testing.T) {
	c := behind(t)
	c.dear, c.cost = "", 100*time.Millisecond
	for i := range 100 {
		name := string(rune('a'+i/10)) + string(rune('0'+i%10)) + "-"
		c.add(podsNamed(name, 2, of(name), needs(2), sized(100+i))...)
	}
	c.run()
	c.turns.RecordChange(turns.Freed)
	if _, until := c.turns.Awaits("a/e", c.now); until.Sub(c.now) > time.Second {
		t.Errorf("nobody is tried again for %s", until.Sub(c.now))
	}
}

// TestLastInRank: while changes come faster than attempts can be made, the last in rank still has
// its turn.
func TestLastInRank(t *testing.T) {
	c := line(t, 30, func(i int) int { return 200 - i })
	tried := c.churn(100*time.Millisecond, 2*time.Minute, 100*time.Millisecond)
	if tried["a/g029"] == 0 || tried["a/g000"] < 100 {
		t.Errorf("in 2 min, %d attempts: the first was tried %d times, the last %d times", len(c.attempts), tried["a/g000"], tried["a/g029"])
	}
}
