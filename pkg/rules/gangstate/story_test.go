package gangstate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// story is what happens in a cluster, and what its log has then. Whatever happens, the watch checks
// the state after every input.
type story struct {
	room map[string]int // nil for a node with room for all
	play func(c *cluster)
	want []string
}

func tellStories(t *testing.T, stories map[string]story) {
	for sentence, story := range stories {
		t.Run(sentence, func(t *testing.T) {
			if story.room == nil {
				story.room = map[string]int{"n": 9}
			}
			c := newCluster(t, story.room)
			story.play(c)
			if diff := cmp.Diff(story.want, c.log); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
			c.end(t)
		})
	}
}

// notNamedBack is what the event says of a gang that names another, which does not name it.
func notNamedBack(gang, other string) string {
	return fmt.Sprintf("%s: %q is not a gang that names %s back; using it one way: %s does not wait for %s; write the group on all its gangs", groupsKey, other, gang, other, gang)
}

// end takes everything away; nothing may be left.
func (c *cluster) end(t *testing.T) {
	t.Helper()
	for id := range c.pods {
		delete(c.pods, id)
		c.after(c.s.PodEnded(id, c.now), nil)
	}
	checkNothingLeft(t, c.watch, c.now)
}

// checkNothingLeft takes away what describes gangs without pods.
func checkNothingLeft(t testing.TB, w *watch, now time.Time) {
	t.Helper()
	s := w.s
	for id := range s.succeeded {
		w.after(s.ForgetSucceeded(podOf(string(id)), now), nil)
	}
	for _, key := range s.keys() {
		w.after(s.Describe(gangspec.Community, key, nil, now), nil)
		w.after(s.Describe(gangspec.Native, key, nil, now), nil)
	}
	if n := len(s.gangs) + len(s.members) + len(s.naming) + len(s.timed) + len(s.succeeded); n > 0 {
		t.Errorf("%d things are left of nothing: %+v", n, s)
	}
}

func TestStoriesOfRelease(t *testing.T) {
	tellStories(t, map[string]story{
		"a gang that does not fit whole takes nothing": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("train"), needs(4))...)
				c.outcome("room for 3")
				c.why("train")
				c.grow("n", 1)
				c.later(time.Second, "room for 4")
			},
			want: []string{
				"room for 3: a/train 4 pending",
				`Unschedulable: gang "a/train": 3 of 4 members fit`,
				"room for 4: a/train 4 bound",
			},
		},
		"an incomplete gang costs no cycle and says what it lacks": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(4))...)
				c.outcome("three came")
				c.why("train")
				if len(c.cycles) > 0 {
					c.fail("cycles were spent: %v", c.cycles)
				}
			},
			want: []string{
				"three came: a/train 3 pending",
				`GangIncomplete: gang "a/train" has 3 of 4 members`,
			},
		},
		"nobody binds before the last one is held": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				for c.step() {
					c.look("then")
				}
			},
			want: []string{
				"then: a/train 2 planned 1 held", // the leader's own cycle holds it, too
				"then: a/train 1 planned 2 held",
				"then: a/train 3 released",
				"then: a/train 2 released 1 bound",
				"then: a/train 1 released 2 bound",
				"then: a/train 3 bound",
			},
		},
		"a group crosses namespaces and goes together": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.bring(podsNamed("x", 2, of("x"), needs(2), says(groupsKey, `["b/y"]`))...)
				c.why("x")
				c.bring(podOf("y1", in("b"), of("y"), needs(2), says(groupsKey, `["a/x","b/y"]`)))
				c.why("x")
				c.look("one lacks")
				c.add(podOf("y2", in("b"), of("y"), needs(2), says(groupsKey, `["a/x","b/y"]`)))
				c.outcome("all there")
			},
			want: []string{
				`GangIncomplete: gang "a/x" waits for gang "b/y", listed in its groups annotation, which has no pods`,
				`GangIncomplete: gang "a/x" waits for its group: gang "b/y" has 1 of 2 members`,
				"one lacks: a/x 2 pending, b/y 1 pending",
				"all there: a/x 2 bound, b/y 2 bound",
			},
		},
		"a gang waits for one that its group waits for": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.bring(podOf("x1", of("x"), needs(1), says(groupsKey, `["a/y"]`)), podOf("y1", of("y"), needs(1), says(groupsKey, `["a/x","a/z"]`)))
				c.why("x")
			},
			want: []string{`GangIncomplete: gang "a/x" waits for its group: gang "a/y" waits for gang "a/z", listed in its groups annotation, which has no pods`},
		},
		"a gang waits for one of which the name is misspelled": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.bring(podOf("x1", of("x"), needs(1), says(groupsKey, `["a/wrkers"]`)), podOf("y1", of("workers"), needs(1), says(groupsKey, `["a/x"]`)))
				c.why("x")
			},
			want: []string{
				`event on y1: gang.scheduling.koordinator.sh/groups: "a/x" is not a gang that names a/workers back; using it one way: a/x does not wait for a/workers; write the group on all its gangs`,
				`GangIncomplete: gang "a/x" waits for gang "a/wrkers", listed in its groups annotation, which has no pods; gang "a/workers", which names it, is not listed there`,
			},
		},
		"a member comes back, and the others of its group have come to their end": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.add(podsNamed("x", 3, of("x"), needs(3), says(groupsKey, `["b/y"]`))...)
				c.add(podsNamed("y", 2, in("b"), of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.outcome("all there")
				c.finish("x1")
				c.remove("x2")
				c.remove("x3")
				c.add(podsNamed("z", 2, of("x"), needs(3), says(groupsKey, `["b/y"]`))...)
				c.finish("y1")
				c.remove("y2")
				c.outcome("back")
			},
			want: []string{
				"all there: a/x 3 bound, b/y 2 bound",
				"back: a/x 2 bound, b/y empty",
			},
		},
		"a job that is run again waits for its group again": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.add(podsNamed("x", 2, of("x"), owned("monday"), needs(2), says(groupsKey, `["b/y"]`))...)
				c.bring(podsNamed("y", 2, in("b"), of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.finish("x")
				c.finish("y")
				c.pass(time.Hour)
				c.bring(podsNamed("z", 2, of("x"), owned("tuesday"), needs(2), says(groupsKey, `["b/y"]`))...)
				c.why("x")
			},
			want: []string{
				`GangIncomplete: gang "a/x" waits for gang "b/y", listed in its groups annotation, which has no pods`,
			},
		},
		"a group that cannot go does not stand in the way of another": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.bring(podsNamed("a", 2, of("a"), needs(2), says(groupsKey, `["b/b"]`))...)
				c.bring(podsNamed("c", 2, of("c"), needs(2), says(groupsKey, `["b/d"]`))...)
				c.bring(podsNamed("b", 2, in("b"), of("b"), needs(2), only("nowhere"), says(groupsKey, `["a/a"]`))...)
				c.add(podsNamed("d", 2, in("b"), of("d"), needs(2), says(groupsKey, `["a/c"]`))...)
				c.outcome("B is unschedulable")
				c.later(2*time.Minute, "later")
			},
			want: []string{
				"B is unschedulable: a/a 2 pending, a/c 2 bound, b/b 2 pending, b/d 2 bound",
				"later: a/a 2 pending, a/c 2 bound, b/b 2 pending, b/d 2 bound",
			},
		},
		"a gang that is named but does not agree is waited for, and not bound": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.add(podsNamed("x", 2, of("x"), needs(2), says(groupsKey, `["a/y"]`))...)
				c.add(podOf("y1", of("y"), needs(2)))
				c.outcome("y lacks one")
				c.add(podOf("y2", of("y"), needs(2)))
				c.outcome("y is whole")
			},
			want: []string{
				"event on x1: " + notNamedBack("a/x", "a/y"),
				"y lacks one: a/x 2 pending, a/y 1 pending",
				"y is whole: a/x 2 bound, a/y 2 bound",
			},
		},
		"a gang that names one that does not name it back is told so once that is known, and once": {
			play: func(c *cluster) {
				x, y, z := says(groupsKey, `["a/y"]`), says(groupsKey, `["a/x","a/z"]`), gangspec.Key{Namespace: "a", Name: "z"}
				c.bring(podsNamed("x", 2, of("x"), needs(2), x)...)
				c.look("there is no y")
				c.bring(podOf("y1", of("y")))
				c.look("y has no minimum yet")
				c.bring(podOf("y2", of("y"), needs(3)))
				c.look("it has, and runs without x")
				c.change("x", says("example.com/other", "1"))
				c.change("y", needs(3), y)
				c.after(c.s.Describe(gangspec.Community, z, &gangspec.PodGroupDescription{UID: "z", Min: 1, Annotations: map[string]string{groupsKey: `["a/w"]`}}, c.now), nil)
				c.look("z has no members")
				c.bring(podOf("w1", of("w"), needs(1)), podOf("z1", of("z")))
				c.look("each goes but x and y")
			},
			want: []string{
				"there is no y: a/x 2 pending",
				"y has no minimum yet: a/x 2 pending, a/y 1 pending",
				"event on x1: " + notNamedBack("a/x", "a/y"),
				"it has, and runs without x: a/x 2 pending, a/y 2 pending",
				"z has no members: a/x 2 pending, a/y 2 pending, a/z empty",
				"event on PodGroup: " + notNamedBack("a/z", "a/w"),
				"event on y1: " + notNamedBack("a/y", "a/z"),
				"each goes but x and y: a/w 1 bound, a/x 2 pending, a/y 2 pending, a/z 1 bound",
			},
		},
		"one of the released fails to bind and is tried again alone": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.refuse["p2"] = 2
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				c.outcome("all but one bound")
				c.log = append(c.log, "cycles of p2: "+string(rune('0'+c.cycles["p2"])))
			},
			want: []string{"all but one bound: a/train 3 bound", "cycles of p2: 3"},
		},
		"nobody was bound, so the minimum still holds": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.refuse["p1"], c.refuse["p2"], c.refuse["p3"] = 1, 1, 1
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				c.until("p3", Released)
				c.room["n"] = 2 // another pod was faster
				c.outcome("no binding went through")
				c.grow("n", 1)
				c.later(20*time.Second, "there is room again")
			},
			want: []string{
				"no binding went through: a/train 3 pending",
				"there is room again: a/train 3 bound",
			},
		},
		"what is above the minimum and has no room waits alone": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(2))...)
				c.outcome("room for two")
				c.grow("n", 1)
				c.outcome("room for three")
			},
			want: []string{"room for two: a/train 1 pending 2 bound", "room for three: a/train 3 bound"},
		},
		"after a restart the rest of a gang that was being bound goes on": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.add(podOf("p3", of("train"), needs(4)))
				c.outcome("the first was not bound")
				c.add(podOf("p1", of("train"), needs(4), on("n")))
				c.add(podOf("p2", of("train"), needs(4), on("n")))
				c.add(podOf("p4", of("train"), needs(4)))
				c.outcome("all were seen")
			},
			want: []string{"the first was not bound: a/train 1 pending", "all were seen: a/train 4 bound"},
		},
	})
}

// keys lists the gangs, sorted.
func (s *Gangs) keys() []gangspec.Key {
	keys := make([]gangspec.Key, 0, len(s.gangs))
	for key := range s.gangs {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, gangspec.CompareKeys)
	return keys
}
