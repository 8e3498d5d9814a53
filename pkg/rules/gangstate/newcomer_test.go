package gangstate

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// behind returns a cluster with a group that does not fit, costs a second to plan and is always
// due, since something happens every second.
func behind(t *testing.T, before ...string) *cluster {
	t.Helper()
	c := newCluster(t, map[string]int{"n": 2})
	c.cost = time.Second
	for i, name := range before {
		c.add(podsNamed(name, 4, of(name), needs(4), sized(4-i), aged(time.Hour-time.Duration(i)*time.Second))...)
	}
	c.dear = "a/" + before[0]
	if len(before) > 1 {
		c.dear = ""
	}
	c.run()
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
			c.turns.Happen(turns.Freed)
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
		c := behind(t, "e")
		c.churn(time.Second, 10*time.Second+after, c.cost)
		for _, name := range []string{"x", "y"} {
			c.add(podOf(name, of(name), needs(1)))
		}
		if took := c.happen(t, "y", time.Minute); took > 6*time.Second {
			t.Errorf("those that came after %s started after %s", after, took)
		}
	}
}

// TestNewcomersBehindMany: the turns of newcomers go to each group that is due before them, too.
func TestNewcomersBehindMany(t *testing.T) {
	c := behind(t, "e", "f", "g")
	c.churn(time.Second, 20*time.Second, c.cost)
	c.add(podOf("x", of("x"), needs(1)))
	if took := c.happen(t, "x", time.Minute); took > 40*time.Second {
		t.Errorf("it started after %s", took)
	}
}

// TestNewcomersLeaveRoomToOthers: what has become free is for the group before them that was not
// looked at since.
func TestNewcomersLeaveRoomToOthers(t *testing.T) {
	c := behind(t, "e")
	c.churn(time.Second, 10*time.Second, c.cost)
	c.pass(100 * time.Millisecond) // it is tried once more
	c.room["n"] = 16
	c.turns.Happen(turns.Freed)
	c.add(podsNamed("x", 16, of("x"), needs(16))...)
	c.happen(t, "e1", 10*time.Second)
	if c.at["x1"] == bound {
		t.Error("the newcomer took it")
	}
}

// TestNewcomersDoNotAddUp: a gang that waits is not kept from what becomes free by the
// first attempts of many others.
func TestNewcomersDoNotAddUp(t *testing.T) {
	c := behind(t, "e")
	c.dear, c.cost = "", 100*time.Millisecond
	for i := range 100 {
		name := string(rune('a'+i/10)) + string(rune('0'+i%10)) + "-"
		c.add(podsNamed(name, 2, of(name), needs(2), sized(100+i))...)
	}
	c.run()
	c.turns.Happen(turns.Freed)
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
