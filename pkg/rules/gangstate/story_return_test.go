package gangstate

import (
	"testing"
	"time"
)

// TestStoriesOfReturn: the outcome of an attempt that was made without some members holds only until those are back.
func TestStoriesOfReturn(t *testing.T) {
	tellStories(t, map[string]story{
		"a gang is tried again with spare members that have given back their nodes, though it was hopeless without them": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("train"), needs(4))...)
				c.add(podsNamed("q", 2, of("train"), needs(4), only("nowhere"))...)
				c.until("p1", Held)
				c.until("p2", Held)
				// The others do not fit any more: the round fails, and two give back their nodes, which takes them some time.
				var back []func()
				c.room["n"] = 2
				for c.s.members["p1"].state == Held {
					if !c.step() {
						c.fail("the round goes on")
					}
				}
				back, c.tasks = c.tasks, nil
				c.look("the round failed")
				c.hopeless = map[string]bool{"a/train": true} // p3, p4, q1, q2: the last two fit nowhere
				c.pass(2 * time.Second)
				c.why("train")
				c.hopeless = nil
				c.room["n"] = 4
				c.tasks = back
				c.run()
				c.later(10*time.Second, "10 s after they are back")
			},
			want: []string{
				"the round failed: a/train 4 pending 2 returning",
				`Unschedulable: gang "a/train": 0 of 4 members fit`,
				"10 s after they are back: a/train 2 pending 4 bound",
			},
		},
	})
}
