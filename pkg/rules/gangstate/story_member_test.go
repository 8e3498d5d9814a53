package gangstate

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

func TestStoriesOfSpecs(t *testing.T) {
	const used = "the minimum that another member or the PodGroup states; without one the gang is held back"
	tellStories(t, map[string]story{
		"illegal annotations": {
			play: func(c *cluster) {
				c.add(podOf("p1", of("train"), says(minKey, "xxx")))
				c.outcome("first")
				c.add(podOf("p2", of("train"), needs(2), says(totalKey, "1"), says(modeKey, "nonsense"), says(waitKey, "nonsense"), says(groupsKey, "nonsense")))
				c.outcome("second")
				c.change("p", labeled("touched", "yes"))
			},
			want: []string{
				"event on p1: " + minKey + `: "xxx" is not a whole number from 1 to 100000; using ` + used,
				"first: a/train 1 pending",
				"event on p2: " + totalKey + `: "1" is not at least the minimum; using 2, the minimum`,
				"event on p2: " + modeKey + `: "nonsense" is not one of Strict, NonStrict; using Strict`,
				"event on p2: " + waitKey + `: "nonsense" is not a positive duration such as 90s or 1h; using 10m0s, the default, for each round, without an end`,
				"event on p2: " + groupsKey + `: "nonsense" is not a JSON list of "namespace/name"; using none: the gang is alone`,
				"second: a/train 2 bound",
			},
		},
		"a bad value is told once, on the object that has it": {
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 3, Annotations: values{modeKey: "loose"}})
				c.add(podOf("p1", of("train"), says(minKey, "two")))
				c.add(podOf("p2", of("train"), says(minKey, "two"), aged(time.Minute)))
				c.describe("train", &gangspec.PodGroupDescription{Min: 4, Annotations: values{modeKey: "loose"}})
				c.remove("p2")
			},
			want: []string{
				"event on PodGroup: " + modeKey + `: "loose" is not one of Strict, NonStrict; using Strict`,
				"event on p1: " + minKey + `: "two" is not a whole number from 1 to 100000; using 3, the PodGroup's minimum`,
			},
		},
		"a bad value that all members have is told once, also when they go one by one": {
			play: func(c *cluster) {
				for i := range 4 {
					c.add(podOf(fmt.Sprint("p", i), of("train"), needs(3), says(modeKey, "loose")))
				}
				for i := range 4 {
					c.remove(fmt.Sprint("p", i))
				}
				c.add(podOf("p5", of("train"), needs(3), says(modeKey, "loose")))
			},
			want: []string{
				"event on p0: " + modeKey + `: "loose" is not one of Strict, NonStrict; using Strict`,
				"event on p5: " + modeKey + `: "loose" is not one of Strict, NonStrict; using Strict`,
			},
		},
		"a member that states a minimum defines the gang rather than an older one that does not": {
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 5})
				c.add(podOf("p1", of("train"), says(modeKey, "NonStrict"), aged(time.Hour)))
				c.add(podOf("p2", of("train"), needs(2)))
				c.outcome("min 2, by the younger")
			},
			want: []string{
				`event on p1: ` + modeKey + `: "NonStrict" is not what pod p2 says, which counts for the gang; using what the PodGroup says, or the default; write the same on all its pods`,
				"min 2, by the younger: a/train 2 bound",
			},
		},
		"the PodGroup before the pods, and an annotation over its minimum": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 3})
				c.add(podsNamed("p", 2, of("train"))...)
				c.outcome("min 3")
				c.add(podOf("q", of("train"), needs(2)))
				c.outcome("min 2")
			},
			want: []string{"min 3: a/train 2 pending", "min 2: a/train 1 pending 2 bound"},
		},
		"the PodGroup is deleted while pods wait": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 3, Annotations: values{modeKey: "NonStrict"}})
				c.add(podsNamed("p", 3, labeled(v1alpha1.PodGroupXLabel, "train"), sized(2))...)
				c.outcome("one of three fits")
				c.describe("train", nil)
				c.outcome("deleted")
				c.why("train")
				c.grow("n", 9)
				c.later(2*time.Minute, "held back")
				c.describe("train", &gangspec.PodGroupDescription{Min: 3})
				c.outcome("back again")
			},
			want: []string{
				"one of three fits: a/train 2 pending 1 planned",
				"deleted: a/train 3 pending",
				`GangUndefined: gang "a/train" has no minimum: its PodGroup does not exist`,
				"held back: a/train 3 pending",
				"back again: a/train 3 bound",
			},
		},
		"a PodGroup whose minimum cannot be used says so": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: -3})
				c.add(podsNamed("p", 3, labeled(v1alpha1.PodGroupLabel, "train"))...)
				c.why("train")
			},
			want: []string{
				`event on PodGroup: spec.minMember: "-3" is not a whole number from 1 to 100000; using nothing: the gang is held back until it has a minimum`,
				`GangUndefined: gang "a/train" has no minimum: its PodGroup states none that can be used`,
			},
		},
		"where two kinds of PodGroup describe a gang the community's wins": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.do(c.s.Describe(gangspec.Native, gangspec.Key{Namespace: "a", Name: "train"}, &gangspec.PodGroupDescription{Created: start, Min: 2}, c.now))
				c.describe("train", &gangspec.PodGroupDescription{Min: 3})
				c.add(podsNamed("p", 2, labeled(v1alpha1.PodGroupLabel, "train"))...)
				c.outcome("min 3")
				c.describe("train", nil)
				c.outcome("min 2")
			},
			want: []string{"min 3: a/train 2 pending", "min 2: a/train 2 bound"},
		},
	})
}

func TestStoriesOfMembers(t *testing.T) {
	tellStories(t, map[string]story{
		"pods with scheduling gates are members, and wait for their user": {
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("train"), needs(3))...)
				c.bring(podOf("q", of("train"), needs(3), gated))
				c.why("train")
				c.change("q", ungated)
				c.outcome("ungated")
			},
			want: []string{
				`GangIncomplete: gang "a/train" has 2 of 3 members (and 1 with scheduling gates)`,
				"ungated: a/train 3 bound",
			},
		},
		"a pod whose ResourceClaims are not made yet is a member, and waits for them": {
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("train"), needs(3))...)
				c.bring(podOf("q", of("train"), needs(3), claiming("gpu", "nic")))
				c.why("train")
				c.change("q", made("nic"))
				c.run()
				c.why("train")
				c.change("q", made("gpu"))
				c.outcome("made")
			},
			want: []string{
				`GangIncomplete: gang "a/train" has 2 of 3 members (and 1 without ResourceClaims from their template)`,
				`GangIncomplete: gang "a/train" has 2 of 3 members (and 1 without ResourceClaims from their template)`,
				"made: a/train 3 bound",
			},
		},
		"members that share a claim come one after the other, and are bound together": {
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(4), naming("ours"))...)
				c.add(podOf("q", of("train"), needs(4)))
				c.refuse["p2"] = 1
				c.outcome("shared")
			},
			want: []string{"shared: a/train 4 bound"},
		},
		"one that fails on its node gives up its turn": {
			play: func(c *cluster) {
				c.spoiled = "p1"
				c.add(podsNamed("p", 3, of("train"), needs(2), naming("ours", "more"))...)
				c.outcome("p1 comes last")
			},
			want: []string{"p1 comes last: a/train 3 bound"},
		},
		"a member waits while the allocation of its claim is taken back": {
			play: func(c *cluster) {
				ours := types.NamespacedName{Namespace: "a", Name: "ours"}
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				c.withdraw(ours, "p2")
				c.run()
				c.why("train")
				c.do(c.s.Withdrawn(ours, c.now))
				c.outcome("taken back")
				c.withdraw(ours, "p2")
			},
			want: []string{
				"may be taken back: true",
				`GangIncomplete: gang "a/train" has 2 of 3 members (and 1 whose ResourceClaims are being deallocated)`,
				"taken back: a/train 3 bound",
				"may be taken back: false",
			},
		},
		"a member whose claim is taken back while it is in its cycle tries again": {
			play: func(c *cluster) {
				ours := types.NamespacedName{Namespace: "a", Name: "ours"}
				c.add(podsNamed("p", 3, of("train"), needs(2))...)
				c.until("p2", Bound)
				c.remove("p3")
				c.add(podOf("p3", uid("again"), of("train"), needs(2)))
				c.during("again", func() {
					c.withdraw(ours, "again")
					c.do(c.s.Withdrawn(ours, c.now))
				})
				c.run()
				c.pass(2 * time.Second)
				c.look(fmt.Sprintf("after %d cycles", c.cycles["again"]))
			},
			want: []string{"may be taken back: true", "after 2 cycles: a/train 3 bound"},
		},
		"a rank that is none is told, and the labels of the pod count": {
			play: func(c *cluster) {
				c.add(podOf("p1", of("train"), needs(1), says(v1alpha1.NetworkTopologyIndexAnnotation, "first")))
			},
			want: []string{
				"event on p1: " + v1alpha1.NetworkTopologyIndexAnnotation + `: "first" is not a whole number from 0 to 99999; using what the labels of the pod say, or its place in order`,
			},
		},
		"a member is recreated before its deletion is seen": {
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("train"), needs(2))...)
				c.step()
				c.add(podOf("p1", uid("p1-again"), of("train"), needs(2)))
				delete(c.pods, "p1")
				c.do(c.s.PodEnded("p1", c.now))
				c.outcome("the old one was held")
			},
			want: []string{"the old one was held: a/train 2 bound"},
		},
		"a held member that is deleted is replaced by one that waits": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("train"), needs(3))...)
				c.step()
				c.step()
				c.look("two held")
				c.remove("p1")
				c.outcome("p4 came in")
			},
			want: []string{"two held: a/train 1 pending 1 planned 2 held", "p4 came in: a/train 3 bound"},
		},
		"a released member that is deleted does not take the others along": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				c.until("p3", Released)
				c.remove("p1")
				c.outcome("two of three run")
				c.add(podOf("p4", of("train"), needs(3)))
				c.outcome("replaced")
			},
			want: []string{"two of three run: a/train 2 bound", "replaced: a/train 3 bound"},
		},
		"a held member that is being deleted gives back its node at once": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("train"), needs(3))...)
				c.step()
				c.step()
				c.change("p1", dying)
				c.outcome("p1 lingers")
			},
			want: []string{"p1 lingers: a/train 1 pending 3 bound"},
		},
		"a plan of which a member was deleted meanwhile is made again": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("train"), needs(3))...)
				c.retry()
				v := c.s.BeginCycle(c.pods["p1"])
				_, o := c.plan(v.Attempt)
				delete(o.Nodes, "p4")
				c.remove("p2")
				accepted, e := c.s.Planned(v.Attempt, o, c.now)
				c.doPlan(e, accepted)
				c.look("p2 went")
				c.outcome("p4 came in")
			},
			want: []string{"p2 went: a/train 1 pending 2 planned", "p4 came in: a/train 3 bound"},
		},
		"a plan of which the leader was deleted meanwhile is void": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("train"), needs(3))...)
				c.retry()
				v := c.s.BeginCycle(c.pods["p1"])
				_, o := c.plan(v.Attempt)
				c.remove("p1")
				accepted, e := c.s.Planned(v.Attempt, o, c.now)
				c.doPlan(e, accepted)
				c.look("p1 went")
				c.outcome("p2 led")
			},
			want: []string{"p1 went: a/train 3 pending", "p2 led: a/train 3 bound"},
		},
		"a plan whose gang became incomplete meanwhile holds nothing": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				c.retry()
				v := c.s.BeginCycle(c.pods["p1"])
				_, o := c.plan(v.Attempt)
				c.remove("p3")
				accepted, e := c.s.Planned(v.Attempt, o, c.now)
				c.doPlan(e, accepted)
				c.look("p3 went")
				c.note("%d accepted", len(accepted))
			},
			want: []string{"p3 went: a/train 2 pending", "0 accepted"},
		},
		"a plan whose group changed meanwhile is made again": {
			play: func(c *cluster) {
				c.add(podsNamed("y", 2, of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.add(podsNamed("x", 2, of("x"), needs(2))...)
				c.retry()
				v := c.s.BeginCycle(c.pods["x1"])
				_, o := c.plan(v.Attempt)
				c.change("x", says(groupsKey, `["a/y"]`))
				accepted, e := c.s.Planned(v.Attempt, o, c.now)
				c.doPlan(e, accepted)
				c.look("x has joined y")
				c.outcome("together")
			},
			want: []string{"event on y1: " + notNamedBack("a/y", "a/x"), "x has joined y: a/x 2 pending, a/y 2 pending", "together: a/x 2 bound, a/y 2 bound"},
		},
		"a group that changes while members are held gives them back": {
			play: func(c *cluster) {
				c.add(podsNamed("x", 2, of("x"), needs(2))...)
				c.step()
				c.look("x1 held")
				c.change("x", says(groupsKey, `["a/y"]`))
				c.outcome("x waits for y")
				c.add(podsNamed("y", 2, of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.outcome("y came")
			},
			want: []string{
				"x1 held: a/x 1 planned 1 held", "x waits for y: a/x 2 pending",
				"y came: a/x 2 bound, a/y 2 bound",
			},
		},
		"gangs whose link leaves settle on their own": {
			play: func(c *cluster) {
				c.add(podsNamed("x", 1, of("x"), needs(1), says(groupsKey, `["a/y"]`))...)
				c.add(podsNamed("y", 1, of("y"), needs(2), says(groupsKey, `["a/x","a/z"]`))...)
				c.add(podsNamed("z", 1, of("z"), needs(1), says(groupsKey, `["a/y"]`))...)
				c.outcome("y lacks one")
				c.change("y", needs(1), says(groupsKey, ""))
				c.outcome("y left, and runs")
			},
			want: []string{
				"y lacks one: a/x 1 pending, a/y 1 pending, a/z 1 pending",
				"event on x1: " + notNamedBack("a/x", "a/y"),
				"event on z1: " + notNamedBack("a/z", "a/y"),
				"y left, and runs: a/x 1 bound, a/y 1 bound, a/z 1 bound",
			},
		},
		"a pod that leaves its gang is on its own": {
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("train"), needs(3))...)
				c.change("p1", of(""))
				c.outcome("p1 left")
				c.note("p1 on %s", c.pods["p1"].Spec.NodeName)
			},
			want: []string{"p1 left: a/train 1 pending", "p1 on n"},
		},
		"a held pod that changes its gang gives back its node first": {
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("train"), needs(2))...)
				c.step()
				c.add(podsNamed("q", 1, of("other"), needs(2))...)
				c.change("p1", of("other"))
				c.look("p1 was held")
				c.outcome("and goes with the other")
			},
			want: []string{
				"p1 was held: a/other 1 pending 1 returning, a/train 1 pending",
				"and goes with the other: a/other 2 bound, a/train 1 pending",
			},
		},
		"a pod that somebody else binds needs no plan any more": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("train"), needs(3))...)
				c.step()
				c.change("p3", on("m"))
				c.change("p1", on("m"))
				c.outcome("one was planned, one held")
			},
			want: []string{"one was planned, one held: a/train 3 bound"},
		},
	})
}
