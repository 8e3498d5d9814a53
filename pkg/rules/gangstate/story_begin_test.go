package gangstate

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestStoriesOfInterruptedReleases: the scheduler that released a gang ended before all of its
// minimum was bound.
func TestStoriesOfInterruptedReleases(t *testing.T) {
	// half adds a gang of four of which two are bound.
	half := func(c *cluster, changes ...func(*podT)) {
		c.s.closed = true
		gang := append([]func(*podT){of("x"), needs(4)}, changes...)
		c.add(podsNamed("b", 2, append(gang, bindTo("n", time.Second))...)...)
		c.add(podsNamed("p", 2, gang...)...)
		c.do(c.s.Open(c.now))
	}
	tellStories(t, map[string]story{
		"the rest is planned as a whole, or not at all": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				half(c)
				c.outcome("room for one of two")
				c.why("x")
				c.grow("n", 1)
				c.later(time.Second, "room for both")
				c.remove("p1")
				c.add(podOf("q", of("x"), needs(4)))
				c.outcome("it has started by now, and a replacement goes alone")
			},
			want: []string{
				"room for one of two: a/x 2 pending 2 bound",
				`Unschedulable: gang "a/x": 1 of 2 members fit`,
				"room for both: a/x 4 bound",
				"it has started by now, and a replacement goes alone: a/x 4 bound",
			},
		},
		"the rest comes before older gangs of its priority": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.s.closed = true
				c.add(podsNamed("o", 2, of("older"), needs(2), aged(time.Hour))...)
				half(c)
				c.step()
				c.outcome("room for two")
				w, _ := c.s.Wants(c.pods["o1"])
				c.note("older has begun: %t", w.Begun)
			},
			want: []string{"room for two: a/older 2 pending, a/x 4 bound", "older has begun: false"},
		},
		"replacements of members that were lost before the restart go alone": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.s.closed = true
				c.add(podsNamed("b", 2, of("x"), needs(4), bindTo("n", time.Second))...)
				c.add(podsNamed("p", 2, of("x"), needs(4), aged(-2*time.Second))...)
				c.do(c.s.Open(c.now))
				c.outcome("room for one of two")
			},
			want: []string{"room for one of two: a/x 1 pending 3 bound"},
		},
		"the rest does not wait for a gang that no longer names it: it was there when the release began": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.add(podsNamed("y", 2, of("y"), bindTo("m", time.Second))...)
				half(c, says(groupsKey, `["a/y"]`))
				c.outcome("the PodGroup of y is gone, and its pods run")
			},
			want: []string{"the PodGroup of y is gone, and its pods run: a/x 4 bound, a/y 2 bound"},
		},
		"members that could not have been part of the release do not tell of one": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.s.closed = true
				c.add(podsNamed("b", 2, of("x"), needs(3), bindTo("n", time.Second))...)
				c.add(podsNamed("g", 2, of("x"), needs(3), gated)...)
				c.add(podOf("p", of("x"), needs(3), aged(-2*time.Second)))
				c.do(c.s.Open(c.now))
				c.outcome("a replacement, and two with gates")
			},
			want: []string{"a replacement, and two with gates: a/x 2 pending 3 bound"},
		},
		"a role that is short is part of the minimum": {
			play: func(c *cluster) {
				c.s.closed = true
				gang := []func(*podT){of("x"), needs(2), says(rolesKey, `{"ps":1,"w":1}`)}
				c.add(podsNamed("w", 2, append(gang, as("w"), bindTo("n", time.Second))...)...)
				c.add(podOf("ps", append(gang, as("ps"))...))
				c.do(c.s.Open(c.now))
				w, _ := c.s.Wants(c.pods["ps"])
				c.note("runs: %t", w.Ready)
				c.outcome("the ps came")
			},
			want: []string{"runs: false", "the ps came: a/x 3 bound"},
		},
		"a process that watches another one release knows what is left of it": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("x"), needs(4))...)
				c.pass(time.Second)
				c.add(edit(c.pods["p1"], bindTo("n", time.Second)), edit(c.pods["p2"], bindTo("n", time.Second)))
				c.outcome("two were bound, and there is room for one of the others")
				c.add(edit(c.pods["p3"], bindTo("n", time.Second)), edit(c.pods["p4"], bindTo("n", time.Second)))
				c.remove("p1")
				c.add(podOf("q", of("x"), needs(4)))
				c.outcome("all were, and one was lost")
			},
			want: []string{
				"two were bound, and there is room for one of the others: a/x 2 pending 2 bound",
				"all were, and one was lost: a/x 1 pending 3 bound",
			},
		},
		"who makes up for lost members has begun, and others do not": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				wants := func(when string) {
					for _, id := range c.named("") {
						if w, undecided := c.s.Wants(c.pods[id]); undecided {
							c.note("%s: %s begun %t, beyond the minimum %t, alone %t", when, id, w.Begun, w.Ready, w.Alone)
						}
					}
				}
				c.bring(podsNamed("p", 4, of("x"), needs(4))...)
				c.bring(podOf("q", of("x"), needs(4), aged(-time.Minute)))
				wants("all run")
				delete(c.pods, "p1")
				delete(c.node, "p1")
				delete(c.at, "p1")
				e := c.s.PodEnded("p1", c.now)
				for _, pod := range e.Activate {
					c.note("the gates are asked again about %s", pod.Name)
				}
				c.add(podOf("r", of("x"), needs(4), aged(-2*time.Minute)))
				wants("one is lost")
				c.do(e)
				c.outcome("it has its place")
				wants("all run again")
			},
			want: []string{
				"all run: q begun false, beyond the minimum true, alone true",
				"the gates are asked again about q",
				"one is lost: q begun true, beyond the minimum false, alone true",
				"one is lost: r begun false, beyond the minimum true, alone true",
				"it has its place: a/x 1 pending 4 bound",
				"all run again: r begun false, beyond the minimum true, alone true",
			},
		},
		"a minimum that is raised was never lost": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("x"), needs(2))...)
				c.bring(podsNamed("q", 3, of("x"), needs(2), aged(-time.Minute))...)
				c.change("", needs(5))
				c.grows("x")
				c.footprint("x")
				for _, id := range c.named("q") {
					w, _ := c.s.Wants(c.pods[id])
					c.note("%s begun %t, beyond the minimum %t", id, w.Begun, w.Ready)
				}
				delete(c.pods, "p1")
				delete(c.node, "p1")
				delete(c.at, "p1")
				c.do(c.s.PodEnded("p1", c.now))
				c.grows("x")
				c.footprint("x")
				for _, id := range c.named("q") {
					w, _ := c.s.Wants(c.pods[id])
					c.note("one is lost: %s begun %t", id, w.Begun)
				}
			},
			want: []string{
				"it grows: true",
				"x: 2 run of min 2, map[] by role, broken for 0s",
				"q1 begun false, beyond the minimum false", "q2 begun false, beyond the minimum false", "q3 begun false, beyond the minimum false",
				"it grows: false",
				"x: 1 run of min 5, map[] by role, broken for 0s",
				"one is lost: q1 begun true", "one is lost: q2 begun false", "one is lost: q3 begun false",
			},
		},
		"members that wait beyond a minimum that is raised come to the gate again: they are not beyond it any longer": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.describe("x", &gangspec.PodGroupDescription{Min: 2})
				c.bring(podsNamed("p", 2, of("x"))...)
				c.bring(podOf("q", of("x"), aged(-time.Minute)))
				c.note("q is surplus: %t", c.s.members["q"].rank().Surplus)
				e := c.s.Describe(gangspec.Community, gangspec.Key{Namespace: "a", Name: "x"}, &gangspec.PodGroupDescription{Min: 3, Created: start}, c.now)
				for _, pod := range e.Activate {
					c.note("the gates are asked again about %s", pod.Name)
				}
				c.note("q is surplus: %t", c.s.members["q"].rank().Surplus)
				c.do(e)
			},
			want: []string{"q is surplus: true", "the gates are asked again about q", "q is surplus: false"},
		},
		"what a gang gave up by itself was not lost": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 4, of("x"), needs(4))...)
				c.change("", needs(2))
				for _, id := range []types.UID{"p3", "p4"} {
					delete(c.pods, id)
					delete(c.node, id)
					delete(c.at, id)
					c.do(c.s.PodEnded(id, c.now))
				}
				c.add(podsNamed("q", 2, of("x"), needs(2), aged(-time.Minute))...)
				c.change("", needs(4))
				for _, id := range c.named("q") {
					w, _ := c.s.Wants(c.pods[id])
					c.note("%s begun %t, beyond the minimum %t", id, w.Begun, w.Ready)
				}
			},
			want: []string{"q1 begun false, beyond the minimum false", "q2 begun false, beyond the minimum false"},
		},
		"a gang that comes later to a group of which one runs has not begun": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				both := says(groupsKey, `["a/x", "a/y"]`)
				c.s.closed = true
				c.add(podsNamed("p", 2, of("x"), needs(2), both, bindTo("n", time.Second))...)
				c.add(podsNamed("l", 2, of("y"), needs(2), both, aged(-2*time.Second))...)
				c.do(c.s.Open(c.now))
				w, _ := c.s.Wants(c.pods["l1"])
				c.note("later: begun %t", w.Begun)
				c.remove("l")
				c.add(podsNamed("e", 2, of("y"), needs(2), both)...)
				w, _ = c.s.Wants(c.pods["e1"])
				c.note("there when the first was bound: begun %t", w.Begun)
			},
			want: []string{"later: begun false", "there when the first was bound: begun true"},
		},
		"of roles that are short the right one": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				job := func(role string, changes ...func(*podT)) []func(*podT) {
					return append(changes, of("x"), needs(4), says(rolesKey, `{"ps":1,"worker":3}`), as(role))
				}
				c.add(podOf("ps", job("ps")...))
				c.bring(podsNamed("w", 3, job("worker")...)...)
				c.room["n"] = 0
				c.remove("ps")
				c.bring(podOf("more", job("worker", aged(-time.Minute))...), podOf("new", job("ps", aged(-2*time.Minute))...))
				for _, id := range []string{"more", "new"} {
					w, _ := c.s.Wants(c.pods[types.UID(id)])
					c.note("%s begun: %t", id, w.Begun)
				}
			},
			want: []string{"more begun: false", "new begun: true"},
		},
		"when what was bound is gone it is a gang like any other": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				half(c)
				c.remove("b")
				c.bring(podsNamed("q", 2, of("x"), needs(4))...)
				w, _ := c.s.Wants(c.pods["p1"])
				c.note("begun: %t", w.Begun)
				c.look("four, and room for three")
			},
			want: []string{"begun: false", "four, and room for three: a/x 4 pending"},
		},
	})
}

// TestStoriesOfOwners: a member that succeeded counts in the life of the gang in which it did.
func TestStoriesOfOwners(t *testing.T) {
	jobs := func(c *cluster, n int, changes ...func(*podT)) {
		for i := range n {
			job := string(rune('a' + i))
			c.add(podsNamed(job, 2, append([]func(*podT){of("set"), needs(2 * n), owned(job), as("r")}, changes...)...)...)
		}
	}
	tellStories(t, map[string]story{
		"a gang of several jobs is whole when one of them is done": {
			room: map[string]int{"n": 8},
			play: func(c *cluster) {
				jobs(c, 4, says(rolesKey, `{"r":8}`))
				c.run()
				c.pass(time.Minute)
				c.finish("a")
				c.footprint("set")
				c.remove("b1")
				c.footprint("set")
				c.add(podOf("b3", of("set"), needs(8), owned("b"), as("r"), says(rolesKey, `{"r":8}`), aged(-time.Minute)))
				c.outcome("a replacement")
				c.footprint("set")
			},
			want: []string{
				"set: 6 run of min 6, map[r:6] by role, broken for 0s",
				"set: 5 run of min 6, map[r:6] by role, broken for 0s",
				"a replacement: a/set 6 bound",
				"set: 6 run of min 6, map[r:6] by role, broken for 0s",
			},
		},
		"one of several jobs is done, and the pods of the others end together and are made anew": {
			room: map[string]int{"n": 8},
			play: func(c *cluster) {
				jobs(c, 4)
				c.run()
				c.pass(time.Minute)
				c.finish("a")
				c.pass(time.Minute)
				for _, job := range []string{"b", "c", "d"} {
					c.remove(job)
				}
				for _, job := range []string{"b", "c", "d"} {
					c.add(podsNamed("new"+job, 2, of("set"), needs(8), owned(job), as("r"), aged(-3*time.Minute))...)
				}
				c.outcome("with what is done")
			},
			want: []string{"with what is done: a/set 6 bound"},
		},
		"pods of a job that is done are deleted while the rest runs": {
			room: map[string]int{"n": 8},
			play: func(c *cluster) {
				jobs(c, 4, says(rolesKey, `{"r":8}`))
				c.run()
				c.pass(time.Minute)
				c.finish("a")
				c.forget("a")
				c.footprint("set")
				c.pass(time.Minute)
				c.remove("b")
				c.footprint("set")
				c.finish("")
				c.add(podsNamed("e", 6, of("set"), needs(8), owned("e"), aged(-3*time.Minute))...)
				c.outcome("another run")
			},
			want: []string{
				"set: 6 run of min 6, map[r:6] by role, broken for 0s",
				"set: 4 run of min 6, map[r:6] by role, broken for 0s",
				"another run: a/set 6 pending",
			},
		},
		"pods without a controller count as long as they are there": {
			room: map[string]int{"n": 8},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 4, of("set"), needs(4))...)
				c.pass(time.Minute)
				c.finish("p1")
				c.footprint("set")
				c.forget("p1")
				c.footprint("set")
			},
			want: []string{
				"set: 3 run of min 3, map[] by role, broken for 0s",
				"set: 3 run of min 4, map[] by role, broken for 0s",
			},
		},
	})
}

// forget deletes the objects of pods that ended with success.
func (c *cluster) forget(prefix string) {
	for id := range c.s.succeeded {
		if strings.HasPrefix(string(id), prefix) {
			c.do(c.s.ForgetSucceeded(podOf(string(id)), c.now))
		}
	}
}
