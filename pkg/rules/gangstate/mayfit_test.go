package gangstate

import (
	"testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestMayFit: a gang that did not fit is tried again at once if anything of it has changed, and only then.
func TestMayFit(t *testing.T) {
	group := values{groupsKey: `["a/x","a/y"]`}
	for sentence, c := range map[string]struct {
		play  func(c *cluster)
		again int
	}{
		"its members ask for something else": {
			play: func(c *cluster) {
				c.bring(podsNamed("x", 2, of("x"), needs(2), sized(2))...)
				c.attempts = nil
				c.change("x", sized(1))
			},
			again: 1,
		},
		"it starts without the gang of its group that did not fit": {
			play: func(c *cluster) {
				c.describe("x", &gangspec.PodGroupDescription{Min: 2, Annotations: group})
				c.describe("y", &gangspec.PodGroupDescription{Min: 2, Annotations: group})
				c.bring(append(podsNamed("x", 2, of("x")), podsNamed("y", 2, of("y"))...)...)
				c.attempts = nil
				c.describe("x", &gangspec.PodGroupDescription{Min: 2})
			},
			again: 2, // x starts, and then y may, which names it
		},
		"its PodGroup is written again, and says the same": {
			play: func(c *cluster) {
				c.describe("x", &gangspec.PodGroupDescription{Min: 3})
				c.bring(podsNamed("x", 3, of("x"))...)
				c.attempts = nil
				c.describe("x", &gangspec.PodGroupDescription{Min: 3})
			},
		},
		"its PodGroup names another queue": {
			play: func(c *cluster) {
				c.describe("x", &gangspec.PodGroupDescription{Min: 3})
				c.bring(podsNamed("x", 3, of("x"))...)
				c.attempts = nil
				c.describe("x", &gangspec.PodGroupDescription{Min: 3, Queue: "other"})
			},
			again: 1,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			world := newCluster(t, map[string]int{"n": 2})
			c.play(world)
			world.run()
			if len(world.attempts) != c.again {
				t.Errorf("tried %d more times, want %d", len(world.attempts), c.again)
			}
		})
	}
}
