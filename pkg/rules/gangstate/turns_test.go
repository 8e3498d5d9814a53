package gangstate

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// queue is a full cluster with many gangs that wait. Whenever one starts it checks that no gang
// before it in rank could have.
type queue struct {
	*cluster
	random *rand.Rand
	made   int
	// sizes and members are what gangs ask for.
	sizes, members int
	starts         int
}

func newQueue(t *testing.T, seed uint64, room map[string]int) *queue {
	return &queue{cluster: newCluster(t, room), random: rand.New(rand.NewPCG(seed, 7)), sizes: 3, members: 4}
}

// come adds a gang, of some priority and age, that asks for something.
func (q *queue) come() {
	q.made++
	name := fmt.Sprintf("g%03d", q.made)
	n := 1 + q.random.IntN(q.members)
	q.add(podsNamed(name+"-", n, of(name), needs(n), sized(1+q.random.IntN(q.sizes)), urgent(int32(q.random.IntN(3))),
		aged(time.Duration(q.random.IntN(3600))*time.Second))...)
}

// end ends what runs of some gang.
func (q *queue) end() {
	var running []gangspec.Key
	for _, key := range q.s.keys() {
		if q.s.gangs[key].hasStarted() {
			running = append(running, key)
		}
	}
	if len(running) > 0 {
		q.remove(running[q.random.IntN(len(running))].Name + "-")
	}
}

// settle steps until nothing moves, and checks every start.
func (q *queue) settle() {
	for {
		waiting, seen := q.waiting(), len(q.attempts)
		if !q.step() && !q.retry() {
			_, _, _, again := q.turns.Next(q.now, true)
			if again.IsZero() || again.Sub(q.now) > 30*time.Second {
				q.checkRest()
				return
			}
			q.now = again // the pause is over
		}
		for _, a := range q.attempts[seen:] {
			if a.Complete {
				q.starts++
				q.checkTurn(a.Group, waiting)
			}
		}
	}
}

// checkRest checks that no member awaits anything once nothing moves.
func (q *queue) checkRest() {
	for uid := range q.s.members {
		at, _ := q.s.Progress(uid)
		if awaits, _ := q.turns.Awaits(at.Group, q.now); awaits {
			q.fail("group %s awaits an attempt that does not come", at.Group)
		}
	}
}

// waiter is a gang that is complete and has nothing.
type waiter struct {
	turns.Rank
	fits bool
}

func (q *queue) waiting() map[string]waiter {
	all := map[string]waiter{}
	for key, g := range q.s.gangs {
		if g.need() > 0 && g.gathered() && g.have().N == 0 {
			all[key.String()] = waiter{g.group.rankOf(), q.try(&Attempt{Gangs: []Need{g.wants(false)}}, nil).Complete}
		}
	}
	return all
}

func (q *queue) checkTurn(started string, waiting map[string]waiter) {
	for name, w := range waiting {
		if name != started && w.fits && w.Compare(waiting[started].Rank) < 0 {
			q.fail("gang %s starts before %s, which comes first and fits", started, name)
		}
	}
}

// TestPauseAfterAnAttempt: an attempt that places nothing keeps the next one waiting for four times its cost; one of a
// NonStrict gang that places some members does not: what becomes free next may be for it, too.
func TestPauseAfterAnAttempt(t *testing.T) {
	for sentence, c := range map[string]struct {
		mode string
		room int
		want time.Duration
	}{
		"a Strict gang places nothing":          {"Strict", 5, 40 * time.Millisecond},
		"a NonStrict gang places what fits":     {"NonStrict", 5, 0},
		"and nothing where there is no room":    {"NonStrict", 0, 40 * time.Millisecond},
		"a gang that fits leaves no one behind": {"Strict", 8, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			q := newCluster(t, map[string]int{"n": c.room})
			q.cost = 10 * time.Millisecond
			q.add(podsNamed("p", 8, of("train"), needs(8), says(modeKey, c.mode))...)
			q.run()
			q.turns.RecordChange(turns.Freed)
			_, until := q.turns.Awaits("a/train", q.now)
			if pause := max(0, until.Sub(q.now)); pause != c.want || len(q.attempts) != 1 {
				t.Errorf("a pause of %s after %d attempts, want %s after one", pause, len(q.attempts), c.want)
			}
		})
	}
}

// TestTurns: whatever becomes free, and whichever gangs come meanwhile, a gang starts only if those
// before it in rank do not fit; and one change costs no more attempts that fail than there are
// things to ask for.
func TestTurns(t *testing.T) {
	starts := 0
	for seed := range uint64(15) {
		q := newQueue(t, seed, map[string]int{"n1": 12, "n2": 6, "n3": 6})
		if seed >= 10 {
			q.cost = 10 * time.Millisecond // and there are pauses
		}
		for range 30 {
			q.come()
		}
		q.settle()
		for range 25 {
			before := len(q.attempts)
			came := 0
			if q.random.IntN(4) == 0 {
				q.come()
				q.settle()
				came++
			}
			q.end()
			if q.random.IntN(4) == 0 {
				q.come() // what has become free is not for it
				came++
			}
			q.settle()
			failed := 0
			for _, a := range q.attempts[before:] {
				if !a.Complete {
					failed++
				}
			}
			// What is given back counts as a change, and may be two.
			if limit := 2*q.sizes*q.members + came; failed > limit {
				t.Errorf("seed %d: a change cost %d attempts that failed, want at most %d", seed, failed, limit)
			}
			q.pass(time.Second)
		}
		starts += q.starts
		if t.Failed() {
			return
		}
	}
	if starts < 150 {
		t.Errorf("only %d starts were looked at", starts)
	}
}

// line returns a full cluster where gangs of one wait, the oldest first, each for a size.
func line(t *testing.T, n int, size func(i int) int) *cluster {
	t.Helper()
	c := newCluster(t, map[string]int{"n": 0})
	for i := range n {
		name := fmt.Sprintf("g%03d", i)
		c.add(podsNamed(name+"-", 1, of(name), needs(1), sized(size(i)), aged(time.Hour-time.Duration(i)*time.Second))...)
	}
	c.run()
	c.attempts = nil
	return c
}

// churn makes something end at this interval, and counts the attempts of each group.
func (c *cluster) churn(every, long time.Duration, cost time.Duration) map[string]int {
	c.cost = cost
	const step = 10 * time.Millisecond
	for next, end := c.now, c.now.Add(long); c.now.Before(end); c.now = c.now.Add(step) {
		if !c.now.Before(next) {
			next = next.Add(every)
			c.turns.RecordChange(turns.Freed)
		}
		c.tick()
		c.run()
	}
	tried := map[string]int{}
	for _, a := range c.attempts {
		tried[a.Group]++
	}
	return tried
}

// TestTurnsAreAffordable: with many gangs that wait and something that ends all the time, attempts
// that fail take their part of the thread and no more, and the first in rank is tried for each
// change.
func TestTurnsAreAffordable(t *testing.T) {
	const seconds, perSecond = 20, 5
	for sentence, c := range map[string]struct {
		size        func(int) int
		least, most time.Duration
	}{
		"all ask for the same": {func(int) int { return 7 }, seconds * perSecond * 10 * time.Millisecond, (seconds*perSecond + 1) * 10 * time.Millisecond},
		"each asks for less":   {func(i int) int { return 200 - i }, seconds * time.Second / 6, seconds * time.Second / 5},
	} {
		t.Run(sentence, func(t *testing.T) {
			cluster := line(t, 60, c.size)
			tried := cluster.churn(time.Second/perSecond, seconds*time.Second, 10*time.Millisecond)
			if busy := time.Duration(len(cluster.attempts)) * cluster.cost; busy < c.least || busy > c.most {
				t.Errorf("attempts took %s of %d s, want %s to %s", busy, seconds, c.least, c.most)
			}
			if n := tried["a/g000"]; n < seconds*perSecond*9/10 {
				t.Errorf("the first in rank was tried %d times in %d changes", n, seconds*perSecond)
			}
		})
	}
}

func TestStoriesOfTurns(t *testing.T) {
	full := func(c *cluster, names ...string) {
		c.room["n"] = 0
		for i, name := range names {
			c.add(podsNamed(name, 2, of(name), needs(2), aged(time.Hour-time.Duration(i)*time.Minute))...)
		}
		c.run()
		c.attempts = nil
	}
	tried := func(c *cluster) string {
		names := ""
		for _, a := range c.attempts {
			names += a.Group + " "
		}
		c.attempts = nil
		return names
	}
	tellStories(t, map[string]story{
		"not for one that may evict others, if it may not itself": {
			room: map[string]int{"n": 0},
			play: func(c *cluster) {
				full(c, "a", "b")
				c.change("a", says(v1alpha1.PreemptionDelayAnnotation, "1h"))
				c.run()
				c.attempts = nil
				c.changed()
				c.run()
				c.note("%s", tried(c))
			},
			want: []string{"a/a a/b "},
		},
		"not where room is made for the one that failed: the next may find some, too": {
			room: map[string]int{"n": 0},
			play: func(c *cluster) {
				full(c, "a", "b")
				c.changed()
				c.run()
				c.note("%s", tried(c))
				c.turns.elsewhere.making = map[string]bool{"a/a": true}
				c.pass(time.Second)
				c.note("%s", tried(c))
			},
			want: []string{"a/a ", "a/b "},
		},
		"nor to one that keeps a part, if it is of one that does not": {
			room: map[string]int{"n": 0},
			play: func(c *cluster) {
				nonStrict := []func(*podT){needs(4), says(modeKey, "NonStrict"), says(waitKey, "1h")}
				c.add(podsNamed("a", 4, of("a"), needs(4), aged(2*time.Hour))...)
				c.add(podsNamed("b", 4, append(nonStrict, of("b"), aged(time.Hour))...)...)
				c.bring(podsNamed("c", 4, append(nonStrict, of("c"))...)...)
				tried(c)
				c.changed()
				c.run()
				c.note("%s", tried(c))
				c.grow("n", 1)
				c.run()
				c.note("%s", tried(c))
				c.look("room for one member")
			},
			want: []string{"a/a a/b ", "a/a a/b ", "room for one member: a/a 4 pending, a/b 3 pending 1 planned, a/c 4 pending"},
		},
		"a leader whose cycle ends in an error lets the others have their turn, and comes again": {
			room: map[string]int{"n": 0},
			play: func(c *cluster) {
				for i, name := range []string{"a", "b"} {
					c.add(podsNamed(name, 1, of(name), needs(1), aged(time.Hour-time.Duration(i)*time.Minute))...)
				}
				c.run()
				tried(c)
				c.room["n"] = 1
				c.turns.RecordChange(turns.Freed)
				c.tick()
				c.at["a1"] = going
				c.retry()
				c.note("a leads: %t", c.visit(c.pods["a1"]).Verdict == Lead)
				c.do(c.s.Failed("a1", c.now))
				c.do(c.s.Failed("a1", c.now)) // that was reported
				c.park("a1", false)
				c.run()
				c.note("at once: %s, %d round failed", tried(c), c.failed)
				c.remove("b1")
				c.later(time.Second, "a second later")
			},
			want: []string{"a leads: true", "at once: a/b , 1 round failed", "a second later: a/a 1 bound"},
		},
	})
}

// TestStoriesOfHope: a gang that would not fit on empty nodes holds nothing, and waits for nodes.
func TestStoriesOfHope(t *testing.T) {
	gang := []func(*podT){of("x"), needs(4), says(modeKey, "NonStrict"), says(waitKey, "5s")}
	tellStories(t, map[string]story{
		"a NonStrict gang that can never fit takes nothing": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.hopeless = map[string]bool{"a/x": true}
				c.add(podsNamed("p", 4, gang...)...)
				c.outcome("room for three")
				c.pass(time.Minute)
				c.note("a minute later %d marked", c.marked())
			},
			want: []string{"room for three: a/x 4 pending", "a minute later 0 marked"},
		},
		"one that has lost its hope gives back what it holds": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, gang...)...)
				c.outcome("room for three")
				c.hopeless = map[string]bool{"a/x": true}
				c.changed()
				c.outcome("nodes went")
				c.pass(10 * time.Second)
				c.note("%d marked", c.marked())
			},
			want: []string{"room for three: a/x 1 pending 3 planned", "nodes went: a/x 4 pending", "0 marked"},
		},
	})
}
