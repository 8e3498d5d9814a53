package gangstate

import (
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestStoriesOfClocks: the wait time of an annotation is final, that of a PodGroup's field is for a
// round, and neither runs while room is made.
func TestStoriesOfClocks(t *testing.T) {
	seconds := func(n int32) *int32 { return &n }
	tellStories(t, map[string]story{
		"what a NonStrict gang holds it gives back after a round, and takes again": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 4, RoundSeconds: seconds(5), Annotations: values{modeKey: "NonStrict"}})
				c.add(podsNamed("p", 4, of("train"))...)
				c.outcome("room for three")
				c.pass(4 * time.Second)
				c.now = c.now.Add(time.Second)
				e := c.s.Tick(c.now, c.turns.elsewhere.makes)
				c.note("%d rounds failed", e.RoundsFailed)
				c.do(e)
				c.look("after five seconds")
				c.why("train")
				c.later(2*time.Second, "after a pause")
				c.pass(20 * time.Minute)
				c.note("%d marked", c.marked())
			},
			want: []string{
				"room for three: a/train 1 pending 3 planned", "1 rounds failed",
				"after five seconds: a/train 4 pending", `Unschedulable: gang "a/train": 3 of 4 members fit`,
				"after a pause: a/train 1 pending 3 planned", "0 marked",
			},
		},
		"with both, rounds end and the wait time runs on": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 4, RoundSeconds: seconds(5), Annotations: values{modeKey: "NonStrict", waitKey: "20s"}})
				c.bring(podsNamed("p", 4, of("train"))...)
				c.pass(19 * time.Second)
				c.note("%d marked", c.marked())
				c.pass(time.Second)
				c.note("%d marked", c.marked())
			},
			want: []string{"0 marked", "4 marked"},
		},
		"0 is no time, and nothing to tell of": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 4, RoundSeconds: seconds(0)})
				c.bring(podsNamed("p", 4, of("train"))...)
				c.pass(time.Hour)
				c.note("%d marked", c.marked())
			},
			want: []string{"0 marked"},
		},
		"the default of a gang without any of them is final, if it is NonStrict": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 4, of("train"), needs(4), says(modeKey, "NonStrict"))...)
				c.pass(10 * time.Minute)
				c.note("%d marked", c.marked())
			},
			want: []string{"4 marked"},
		},
		"a Strict gang whose members are stuck on their way tries again": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("train"), needs(4))...)
				c.step()
				c.at["p4"] = going // another plugin never comes back
				c.outcome("three wait")
				c.now = c.now.Add(10 * time.Minute)
				c.tick()
				c.outcome("after the default wait time")
				c.note("%d marked", c.marked())
				c.at["p4"] = parked
				c.later(time.Minute, "it is back")
			},
			want: []string{
				"three wait: a/train 1 planned 3 held", "after the default wait time: a/train 4 pending", "0 marked",
				"it is back: a/train 4 bound",
			},
		},
		"while victims end no clock runs": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 4, of("train"), needs(4), says(waitKey, "10s"))...)
				c.pass(2 * time.Second)
				c.turns.elsewhere.making = map[string]bool{"a/train": true}
				c.pass(10 * time.Minute)
				c.note("%d marked", c.marked())
				c.turns.elsewhere.making = nil
				c.pass(7 * time.Second)
				c.note("%d marked", c.marked())
				c.pass(time.Second)
				c.note("%d marked", c.marked())
			},
			want: []string{"0 marked", "0 marked", "4 marked"},
		},
		"nor does that of a round": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 4, RoundSeconds: seconds(5), Annotations: values{modeKey: "NonStrict"}})
				c.turns.elsewhere.making = map[string]bool{"a/train": true}
				c.bring(podsNamed("p", 4, of("train"))...)
				c.later(time.Minute, "a minute later")
				c.turns.elsewhere.making = nil
				c.later(4*time.Second, "they have ended")
				c.now = c.now.Add(time.Second)
				c.tick()
				c.look("five seconds after that")
			},
			want: []string{
				"a minute later: a/train 1 pending 3 planned", "they have ended: a/train 1 pending 3 planned",
				"five seconds after that: a/train 4 pending",
			},
		},
	})
}

// TestRoundsFailed: only rounds that failed count, not what is reported twice, nor what users
// delete.
func TestRoundsFailed(t *testing.T) {
	c := newCluster(t, map[string]int{"n": 2})
	count := func(e Effects) int { c.do(e); return e.RoundsFailed }
	c.add(podsNamed("p", 2, of("x"), needs(2))...)
	c.step()
	c.node["p2"] = "n"
	c.reserving["p2"] = true
	c.do(c.s.Reserved("p2", "n", c.now))
	if n := count(c.s.PodEnded("p1", c.now)); n != 0 {
		t.Errorf("a member was deleted: %d rounds failed", n)
	}
	delete(c.pods, "p1")
	delete(c.node, "p1")
	c.now = c.now.Add(time.Minute)
	if n := count(c.s.Tick(c.now, c.turns.elsewhere.makes)); n != 0 {
		t.Errorf("members were told again: %d rounds failed", n)
	}
	c = newCluster(t, map[string]int{"n": 2})
	c.spoiled = "p2"
	c.bring(podsNamed("p", 2, of("x"), needs(2))...)
	if c.failed != 1 {
		t.Errorf("members did not fit on their nodes: %d rounds failed, want 1", c.failed)
	}
}
