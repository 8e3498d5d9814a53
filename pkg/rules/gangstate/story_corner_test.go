package gangstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// reserveOnly takes a pod to where it is reserved and has not come to Permit.
func (c *cluster) reserveOnly(id types.UID, node string) {
	c.retry()
	c.visit(c.pods[id])
	c.at[id], c.node[id], c.reserving[id] = going, node, true
	c.do(c.s.Reserved(id, node, c.now))
}

func (c *cluster) permitOnly(id types.UID) {
	wait, _, e := c.s.Permitted(id, c.now)
	delete(c.reserving, id)
	c.note("%s waits: %t", id, wait)
	if c.at[id] = held; !wait {
		c.bind(id)
	}
	c.do(e)
}

func TestStoriesOfCorners(t *testing.T) {
	tellStories(t, map[string]story{
		"a gang that runs waits for none that it names, and does not keep its group waiting": {
			play: func(c *cluster) {
				c.add(podsNamed("x", 1, of("x"), needs(1), says(groupsKey, `["a/y","a/none"]`), on("n"))...)
				c.add(podsNamed("y", 2, of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.outcome("x names one that does not exist")
			},
			want: []string{"x names one that does not exist: a/x 1 bound, a/y 2 bound"},
		},
		"a gang that gives back leaves alone the extras of one that runs": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.add(podsNamed("x", 1, of("x"), needs(1), says(groupsKey, `["a/y"]`), on("n"))...)
				c.add(podsNamed("y", 2, of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.step()
				c.add(podOf("x2", of("x"), needs(1), says(groupsKey, `["a/y"]`)))
				c.reserveOnly("x2", "n")
				c.look("y1 waits, x2 is on its way")
				c.remove("y2")
				c.look("y2 went")
				c.permitOnly("x2")
				c.outcome("x2 came to Permit")
			},
			want: []string{
				"y1 waits, x2 is on its way: a/x 1 held 1 bound, a/y 1 planned 1 held",
				"y2 went: a/x 1 held 1 bound, a/y 1 returning",
				"x2 waits: false",
				"x2 came to Permit: a/x 2 bound, a/y 1 pending",
			},
		},
		"a member that went alone waits when its gang stops running meanwhile": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.add(podsNamed("r", 1, of("x"), needs(2), on("n"))...)
				c.add(podsNamed("p", 2, of("x"), needs(2))...)
				c.reserveOnly("p1", "n")
				c.remove("r")
				c.permitOnly("p1")
				c.look("the one that ran went")
				c.outcome("the other came along")
			},
			want: []string{
				"p1 waits: true", "the one that ran went: a/x 1 pending 1 held",
				"the other came along: a/x 2 bound",
			},
		},
		"a member that went alone gives back its node when its gang becomes incomplete": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.add(podsNamed("r", 1, of("x"), needs(2), on("n"))...)
				c.add(podsNamed("p", 1, of("x"), needs(2))...)
				c.reserveOnly("p1", "n")
				c.remove("r")
				c.permitOnly("p1")
				c.later(time.Second, "nobody else is there")
			},
			want: []string{"p1 waits: true", "nobody else is there: a/x 1 pending"},
		},
		"a member on its way to Reserve when its round failed gives back its node": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("x"), needs(2))...)
				c.step()
				c.retry()
				c.visit(c.pods["p2"]) // it follows
				c.at["p2"] = going
				c.room["n"] = 0
				c.unreserve("p1")
				c.outcome("the round failed")
				c.reserveOnly("p2", "n")
				c.permitOnly("p2")
				c.later(time.Second, "p2 came late")
				c.note("%d taken", len(c.used()))
			},
			want: []string{"the round failed: a/x 2 pending", "p2 waits: true", "p2 came late: a/x 2 pending", "0 taken"},
		},
		"the pauses begin anew when a gang has come together anew": {
			room: map[string]int{"n": 1},
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("x"), needs(2))...)
				for range 20 {
					c.run()
					c.changed()
					c.pass(time.Second)
				}
				c.remove("p2")
				c.bring(podOf("p3", of("x"), needs(2)))
				c.tries()
				c.changed()
				c.pass(time.Second)
				c.note("a second later %d", c.tries())
			},
			want: []string{"a second later 1"},
		},
		"while a round is planned again those who have a place go on": {
			room: map[string]int{"n": 3, "m": 1},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("x"), needs(4))...)
				c.step()
				c.do(c.s.Unreserved("p2", c.now))
				_, kept3 := c.s.Queue(c.pods["p3"])
				_, kept2 := c.s.Queue(c.pods["p2"])
				c.note("p2 leads: %t, p3 goes on: %t", kept2 == "", kept3 == "")
				c.outcome("all fit")
			},
			want: []string{"p2 leads: true, p3 goes on: true", "all fit: a/x 4 bound"},
		},
		"a Strict gang that loses a held place to a preemptor gives back the others, and comes again": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.add(podsNamed("p", 4, of("x"), needs(4))...)
				c.until("p2", Held)
				c.look("on its way")
				c.unreserve("p1")
				c.room["n"] = 3
				c.outcome("preempted")
				c.note("%d taken", len(c.used()))
				c.why("x")
				c.grow("n", 4)
				c.later(time.Second, "there is room again")
			},
			want: []string{
				"on its way: a/x 2 planned 2 held", "preempted: a/x 4 pending", "0 taken",
				`PlacementFailed: gang "a/x": pod p1 lost the place that was held for it, to a preemptor or by a plugin; the gang is tried again`,
				"there is room again: a/x 4 bound",
			},
		},
		"a member that was released before it waited is released again": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.describe("x", &gangspec.PodGroupDescription{Min: 2})
				c.add(podsNamed("p", 2, of("x"))...)
				c.reserveOnly("p1", "n")
				wait, _, e := c.s.Permitted("p1", c.now)
				delete(c.reserving, "p1")
				c.do(e)
				c.describe("x", &gangspec.PodGroupDescription{Min: 1}) // while the framework writes p1 down as waiting
				c.at["p1"] = held
				c.note("p1 waits: %t", wait)
				c.look("p1 was released, and did not hear")
				c.later(time.Second, "a second later")
			},
			want: []string{
				"p1 waits: true", "p1 was released, and did not hear: a/x 1 pending 1 released",
				"a second later: a/x 2 bound",
			},
		},
		"a NonStrict gang whose round fails keeps its places": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("x"), needs(3), says(modeKey, "NonStrict"))...)
				c.step()
				c.step()
				c.room["n"] = 2 // another pod was faster
				c.outcome("one lacks")
				c.note("%d taken", c.used()["n"])
				c.grow("n", 1)
				c.later(20*time.Second, "there is room again")
			},
			want: []string{"one lacks: a/x 1 pending 2 planned", "2 taken", "there is room again: a/x 3 bound"},
		},
		"two NonStrict gangs whose rounds failed make way for each other": {
			room: map[string]int{"n": 3, "m": 3},
			play: func(c *cluster) {
				for _, node := range []string{"n", "m"} {
					c.during(types.UID(node+"2"), func() { c.room[node] = 2 })
					c.bring(podsNamed(node, 3, of("on-"+node), needs(3), says(modeKey, "NonStrict"), only(node))...)
				}
				c.look("each holds two of four places")
				for _, node := range []string{"n", "m"} {
					c.change(node, func(p *v1.Pod) { delete(p.Labels, nodeLabel) })
				}
				c.changed()
				c.later(time.Minute, "they may go anywhere")
			},
			want: []string{
				"each holds two of four places: a/on-m 1 pending 2 planned, a/on-n 1 pending 2 planned",
				"they may go anywhere: a/on-m 3 bound, a/on-n 2 pending 1 planned",
			},
		},
		"and for a gang that comes before them": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.during("p2", func() { c.room["n"] = 2 })
				c.bring(podsNamed("p", 3, of("young"), needs(3), says(modeKey, "NonStrict"))...)
				c.bring(podsNamed("q", 2, of("old"), needs(2), aged(time.Hour))...)
				c.look("the old one comes")
			},
			want: []string{"the old one comes: a/old 2 bound, a/young 3 pending"},
		},
		"a NonStrict member whose binding is called off leaves its place to who comes": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("x"), needs(3), says(modeKey, "NonStrict"))...)
				c.step()
				c.step()
				c.room["n"] = 2 // another pod was faster
				c.outcome("one lacks")
				c.unreserve("p1")
				c.outcome("a preemptor has called p1 off")
			},
			want: []string{"one lacks: a/x 1 pending 2 planned", "a preemptor has called p1 off: a/x 2 pending 1 planned"},
		},
		"a Strict member that waits beyond the framework's limit is planned again": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("x"), needs(3))...)
				c.step()
				c.unreserve("p1")
				c.later(2*time.Second, "after the backoff it fits again")
			},
			want: []string{"after the backoff it fits again: a/x 3 bound"},
		},
		"a leader that did not hear is told again": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("x"), needs(2))...)
				c.at["p1"] = parked // the queue lost it
				c.later(time.Second, "a second later")
			},
			want: []string{"a second later: a/x 2 bound"},
		},
		"a plan that comes when the wait time is over does not hide that": {
			room: map[string]int{"n": 1},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("x"), needs(2), says(modeKey, "NonStrict"), says(waitKey, "5s"))...)
				c.changed()
				c.now = c.now.Add(time.Second)
				c.tick()
				c.retry()
				v := c.visit(c.pods["p2"])
				c.now = c.now.Add(5 * time.Second)
				c.tick()
				accepted, e := c.s.Planned(v.Attempt, Outcome{Why: map[gangspec.Key]string{{Namespace: "a", Name: "x"}: "no room"}}, c.now)
				c.doPlan(e, accepted)
				reason, _ := c.s.why(c.s.gangs[gangspec.Key{Namespace: "a", Name: "x"}])
				c.note("%s, %s", reason, c.s.gangs[gangspec.Key{Namespace: "a", Name: "x"}].failure.message)
			},
			want: []string{`TimedOut, gang "a/x" did not reach its minimum of 2 members within 5s of holding the first`},
		},
		"a leader whose gang runs by the time its plan has failed is tried alone": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.add(podsNamed("x", 1, of("x"), needs(1), says(groupsKey, `["a/y"]`))...)
				c.add(podsNamed("y", 2, of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.at["x1"] = going
				c.retry()
				v := c.visit(c.pods["x1"])
				_, o := c.plan(v.Attempt)
				c.add(podOf("x2", of("x"), on("m")))
				accepted, e := c.s.Planned(v.Attempt, o, c.now)
				c.doPlan(e, accepted)
				c.park("x1", false)
				c.outcome("y does not fit")
			},
			want: []string{"y does not fit: a/x 2 bound, a/y 2 pending"},
		},
		"what is held stays so when gangs part that are both complete": {
			play: func(c *cluster) {
				c.add(podsNamed("x", 2, of("x"), needs(2), says(groupsKey, `["a/y"]`))...)
				c.add(podsNamed("y", 2, of("y"), needs(2), says(groupsKey, `["a/x"]`))...)
				c.step()
				c.look("x1 waits")
				c.change("x", says(groupsKey, ""))
				c.change("y", says(groupsKey, ""))
				c.outcome("each on its own")
				c.note("x1 cost %d cycle", c.cycles["x1"])
			},
			want: []string{
				"x1 waits: a/x 1 planned 1 held, a/y 2 planned",
				"event on y1: " + notNamedBack("a/y", "a/x"),
				"each on its own: a/x 2 bound, a/y 2 bound",
				"x1 cost 1 cycle",
			},
		},
	})
}
