package gangstate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

func (c *cluster) note(format string, args ...any) {
	c.log = append(c.log, fmt.Sprintf(format, args...))
}

// tries returns how many cycles pods have cost since it was last called.
func (c *cluster) tries() int {
	n := 0
	for id, cycles := range c.cycles {
		n += cycles
		delete(c.cycles, id)
	}
	return n
}

func TestStoriesOfRounds(t *testing.T) {
	tellStories(t, map[string]story{
		"while nothing happens a gang that does not fit is tried once a minute": {
			room: map[string]int{"n": 1},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("train"), needs(2))...)
				c.note("at once %d", c.tries())
				c.pass(59 * time.Second)
				c.note("in the first minute %d", c.tries())
				c.pass(time.Second)
				c.note("after it %d", c.tries())
				c.pass(10 * time.Minute)
				c.note("in ten more %d", c.tries())
			},
			want: []string{"at once 1", "in the first minute 0", "after it 1", "in ten more 10"},
		},
		"a gang in a cluster without nodes says so, and starts when some come": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.nodeless = true
				c.bring(podsNamed("p", 2, of("train"), needs(2))...)
				c.why("train")
				c.note("at once %d", c.tries())
				c.pass(30 * time.Second)
				c.note("while nothing happens %d", c.tries())
				c.nodeless = false
				c.turns.RecordChange(turns.NodesChanged)
				c.outcome("nodes came")
			},
			want: []string{`Unschedulable: gang "a/train": 0 of 2 members fit: the cluster has no nodes`, "at once 1", "while nothing happens 0", "nodes came: a/train 2 bound"},
		},
		"a gang whose nodes go while it follows its plan says that there are none, and is planned again": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				c.step()
				c.nodeless = true
				c.run()
				c.why("train")
				c.look("nobody has a place")
				c.nodeless = false
				c.turns.RecordChange(turns.NodesChanged)
				c.later(2*time.Second, "nodes came")
			},
			want: []string{
				`Unschedulable: gang "a/train": 0 of 3 members fit: the cluster has no nodes`,
				"nobody has a place: a/train 3 pending", "nodes came: a/train 3 bound",
			},
		},
		"a gang that has to be planned again holds nothing while another gate keeps its leader": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("train"), needs(2))...)
				c.until("p1", Held)
				c.gatedOut["p1"] = true
				c.unreserve("p1")
				c.outcome("another plugin refused it")
				c.later(7*time.Second, "after 7 s")
				delete(c.gatedOut, "p1")
				c.later(time.Minute, "later")
			},
			want: []string{
				"another plugin refused it: a/train 2 pending", "after 7 s: a/train 2 pending", "later: a/train 2 bound",
			},
		},
		"a gang says that it evicts nobody for a while, and then not any more": {
			room: map[string]int{"n": 1},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("train"), needs(2), says(v1alpha1.PreemptionDelayAnnotation, "90s"))...)
				c.why("train")
				c.note("evicts in %s", c.attempts[0].EvictsIn(c.now))
				c.pass(89 * time.Second)
				c.changed()
				c.run()
				c.note("evicts in %s", c.attempts[len(c.attempts)-1].EvictsIn(c.now))
				c.pass(time.Second)
				c.changed()
				c.run()
				c.note("evicts in %s", c.attempts[len(c.attempts)-1].EvictsIn(c.now))
				e, _ := c.s.Explain(gangspec.Key{Namespace: "a", Name: "train"})
				c.note("tells of it: %t", strings.Contains(e.Message, "evicts no pods"))
			},
			want: []string{
				`Unschedulable: gang "a/train": 1 of 2 members fit; it evicts no pods in the first 1m30s, so that nodes can be added (scheduling.lockstep.dev/preemption-delay)`,
				"evicts in 1m30s", "evicts in 1s", "evicts in 0s", "tells of it: false",
			},
		},
		"the time in which a gang evicts nobody does not begin anew with a member that is replaced": {
			room: map[string]int{"n": 1},
			play: func(c *cluster) {
				evicts := func(when string) { c.note("%s in %s", when, c.attempts[len(c.attempts)-1].EvictsIn(c.now)) }
				delay := says(v1alpha1.PreemptionDelayAnnotation, "90s")
				c.bring(podsNamed("p", 2, of("train"), needs(2), delay)...)
				evicts("at first")
				c.pass(60 * time.Second)
				c.remove("p2")
				c.run()
				c.why("train")
				c.bring(podsNamed("q", 1, of("train"), needs(2), delay)...)
				evicts("with another member")
				c.grow("n", 1)
				c.outcome("it fits")
				c.remove("p")
				c.remove("q")
				c.grow("n", -1)
				c.bring(podsNamed("r", 2, of("train"), needs(2), delay)...)
				evicts("made anew")
			},
			want: []string{
				"at first in 1m30s", `GangIncomplete: gang "a/train" has 1 of 2 members`, "with another member in 30s",
				"it fits: a/train 2 bound", "made anew in 1m30s",
			},
		},
		"a newcomer of a Strict gang is tried at once while total-number is not reached": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				stuck := []func(*podT){of("train"), needs(2), says(totalKey, "4")}
				c.add(podsNamed("p", 2, append(stuck, only("nowhere"))...)...)
				c.outcome("two that fit nowhere")
				c.bring(podOf("q1", stuck...))
				c.note("the third cost %d", c.tries())
				c.add(podOf("q2", stuck...))
				c.outcome("two more")
			},
			want: []string{
				"two that fit nowhere: a/train 2 pending", "the third cost 2",
				"two more: a/train 2 pending 2 bound",
			},
		},
		"and where it is reached": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("train"), needs(1), only("nowhere"))...)
				c.add(podOf("q1", of("train"), needs(1)))
				c.outcome("at once")
			},
			want: []string{"at once: a/train 2 pending 1 bound"},
		},
		"a gang that asks for less is tried again": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 4})
				c.bring(podsNamed("p", 4, labeled(v1alpha1.PodGroupLabel, "train"))...)
				c.describe("train", &gangspec.PodGroupDescription{Min: 3})
				c.later(time.Second, "min 3 of 4")
			},
			want: []string{"min 3 of 4: a/train 1 pending 3 bound"},
		},
		"Strict: a member that fails on its node is planned again around the others": {
			room: map[string]int{"n1": 2, "n2": 1, "n3": 1},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				c.step()
				c.look("planned")
				c.room["n2"] = 0 // another pod was faster
				c.outcome("there was another node")
			},
			want: []string{"planned: a/train 2 planned 1 held", "there was another node: a/train 3 bound"},
		},
		"Strict: one failure ends the round and all is given back": {
			room: map[string]int{"n1": 2, "n2": 1},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				c.step()
				c.step()
				c.look("two of three held")
				c.room["n2"] = 0
				c.outcome("the third has no node")
				c.note("%d taken", len(c.used()))
			},
			want: []string{"two of three held: a/train 1 planned 2 held", "the third has no node: a/train 3 pending", "0 taken"},
		},
		"a round whose plans do not survive contact fails after some, with a reason and a pause": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("train"), needs(2))...)
				c.spoiled = "p2"
				c.outcome("p2 fails wherever it goes")
				c.why("train")
				c.note("%d cycles", c.tries())
				c.pass(time.Second)
				c.note("after a pause %d", c.tries())
			},
			want: []string{
				"p2 fails wherever it goes: a/train 2 pending",
				`PlacementFailed: gang "a/train": members did not fit on the nodes planned for them, 4 times in a row`,
				"5 cycles",
				"after a pause 5",
			},
		},
		"a leader whose gang has its minimum by now leaves the lead to another gang": {
			play: func(c *cluster) {
				c.add(podsNamed("x", 1, of("x"), needs(1), says(groupsKey, `["a/y"]`), only("nowhere"))...)
				c.add(podsNamed("y", 2, of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.add(podOf("z", of("x"), needs(1), on("n")))
				c.outcome("x runs by somebody else's hand")
			},
			want: []string{"x runs by somebody else's hand: a/x 1 pending 1 bound, a/y 2 bound"},
		},
		"asymmetric gangs of a group have to reach each its own minimum": {
			room: map[string]int{"n": 6},
			play: func(c *cluster) {
				c.add(podsNamed("x", 1, of("x"), needs(1), sized(3), says(groupsKey, `["a/y"]`))...)
				c.add(podsNamed("y", 5, of("y"), needs(4), says(groupsKey, `["a/x"]`))...)
				c.outcome("room for 6 of 7")
				c.grow("n", 1)
				c.later(time.Second, "room for 7")
			},
			want: []string{
				"room for 6 of 7: a/x 1 pending, a/y 5 pending",
				"room for 7: a/x 1 bound, a/y 1 pending 4 bound",
			},
		},
	})
}

func TestStoriesOfNonStrict(t *testing.T) {
	tellStories(t, map[string]story{
		"one that holds a part begins afresh where there is room for all": {
			room: map[string]int{"n1": 1},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 2, Annotations: values{modeKey: "NonStrict"}})
				c.add(podOf("big", labeled(v1alpha1.PodGroupLabel, "train"), urgent(1), sized(2)), podOf("small", labeled(v1alpha1.PodGroupLabel, "train")))
				c.outcome("the small one is in the way of the big one")
				c.grow("n1", 1)
				c.outcome("no room beside it yet")
				c.grow("n2", 1)
				c.outcome("room for both, if the small one moves")
			},
			want: []string{
				"the small one is in the way of the big one: a/train 1 pending 1 planned",
				"no room beside it yet: a/train 1 pending 1 planned",
				"room for both, if the small one moves: a/train 2 bound",
			},
		},
		"what fits is held and accumulates": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.add(podsNamed("p", 8, of("train"), needs(5), says(modeKey, "NonStrict"))...)
				c.outcome("room for 4")
				c.grow("n", 1)
				c.later(time.Second, "room for 5")
				c.grow("n", 3)
				c.outcome("room for 8")
			},
			want: []string{
				"room for 4: a/train 4 pending 4 planned",
				"room for 5: a/train 3 pending 5 bound",
				"room for 8: a/train 8 bound",
			},
		},
		"of two that starve each other the later one gives way": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.bring(podsNamed("x", 6, of("x"), needs(6), aged(time.Hour), says(modeKey, "NonStrict"))...)
				c.room["n"] = 6
				c.add(podsNamed("y", 6, of("y"), needs(6), says(modeKey, "NonStrict"))...)
				c.outcome("each has a half")
				c.changed()
				c.later(time.Second, "one gave way")
				c.remove("x")
				c.later(time.Minute, "and had its turn")
			},
			want: []string{
				"each has a half: a/x 3 pending 3 planned, a/y 3 pending 3 planned",
				"one gave way: a/x 6 bound, a/y 6 pending",
				"and had its turn: a/y 6 bound",
			},
		},
		"the one of higher priority is never evicted for the lower": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.bring(podsNamed("x", 9, of("x"), needs(9), urgent(5), says(modeKey, "NonStrict"))...)
				c.room["n"] = 6
				c.bring(podsNamed("y", 6, of("y"), needs(6), aged(time.Hour), says(modeKey, "NonStrict"))...)
				c.changed()
				c.later(30*time.Second, "neither can go")
			},
			want: []string{"neither can go: a/x 6 pending 3 planned, a/y 3 pending 3 planned"},
		},
		"a group with one Strict gang is Strict": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("x", 2, of("x"), needs(2), says(modeKey, "NonStrict"), says(groupsKey, `["a/y"]`))...)
				c.add(podsNamed("y", 2, of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.outcome("room for 3")
			},
			want: []string{"room for 3: a/x 2 pending, a/y 2 pending"},
		},
		"a gang that turns Strict gives back what it had accumulated": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 4, Annotations: values{modeKey: "NonStrict"}})
				c.add(podsNamed("p", 4, of("train"))...)
				c.outcome("NonStrict")
				c.describe("train", &gangspec.PodGroupDescription{Min: 4})
				c.outcome("Strict")
			},
			want: []string{"NonStrict: a/train 1 pending 3 planned", "Strict: a/train 4 pending"},
		},
		"roles that are short hold the rest back, and are planned when there is room": {
			room: map[string]int{"n": 4, "ps": 0},
			play: func(c *cluster) {
				gang := []func(*podT){of("train"), needs(4), says(modeKey, "NonStrict"), says(rolesKey, `{"ps":1,"worker":3}`)}
				c.bring(podsNamed("w", 4, append(gang, as("worker"))...)...)
				c.why("train")
				c.add(podOf("ps1", append(gang, as("ps"), only("ps"))...))
				c.outcome("four workers and no ps")
				c.grow("ps", 1)
				c.later(time.Second, "room for the ps")
			},
			want: []string{
				`GangIncomplete: gang "a/train" lacks 1 more of role ps`,
				"four workers and no ps: a/train 1 pending 4 planned",
				"room for the ps: a/train 5 bound",
			},
		},
	})
}
