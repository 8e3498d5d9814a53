package gangstate

import (
	"testing"
	"time"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// marked counts the pods that carry the timeout annotation.
func (c *cluster) marked() int {
	n := 0
	for _, pod := range c.pods {
		if pod.Annotations[v1alpha1.TimeoutAnnotation] == "true" {
			n++
		}
	}
	return n
}

func TestStoriesOfTime(t *testing.T) {
	const revive = "remove the annotation " + v1alpha1.TimeoutAnnotation + " from them, or replace them"
	tellStories(t, map[string]story{
		"a wait time that runs out": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 4, of("train"), needs(4), says(modeKey, "NonStrict"), says(waitKey, "5s"))...)
				c.later(4*time.Second, "after 4 s")
				c.later(time.Second, "after 5 s")
				c.why("train")
				c.note("%d marked, %d taken", c.marked(), len(c.used()))
				c.tries()
				c.grow("n", 9)
				c.pass(5 * time.Minute)
				c.note("%d cycles in 5 min", c.tries())
				c.change("p", mutely(v1alpha1.TimeoutAnnotation))
				c.outcome("the user removed the annotation")
			},
			want: []string{
				"after 4 s: a/train 1 pending 3 planned",
				"after 5 s: a/train 4 pending",
				`TimedOut: gang "a/train" did not reach its minimum of 4 members within 5s of holding the first; gang "a/train" has 0 of 4 members (and 4 timed out: ` + revive + `)`,
				"4 marked, 0 taken",
				"0 cycles in 5 min",
				"the user removed the annotation: a/train 4 bound",
			},
		},
		"a Strict gang that never fits times out where the user wrote a wait time": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 4, of("train"), needs(4), says(waitKey, "5s"))...)
				c.pass(5 * time.Second)
				c.note("%d marked", c.marked())
				c.remove("p")
				c.add(podsNamed("q", 3, of("train"), needs(3), says(waitKey, "5s"))...)
				c.outcome("the user replaced the pods")
			},
			want: []string{"4 marked", "the user replaced the pods: a/train 3 bound"},
		},
		"a gang of which nothing was ever held does not time out": {
			room: map[string]int{"n": 0},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("train"), needs(2), says(waitKey, "5s"))...)
				c.pass(time.Minute)
				c.note("%d marked", c.marked())
			},
			want: []string{"0 marked"},
		},
		"the wait time begins anew when everything held was given back": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				gang := []func(*podT){of("train"), needs(4), says(modeKey, "NonStrict"), says(waitKey, "10s")}
				c.bring(podsNamed("p", 4, gang...)...)
				c.pass(8 * time.Second)
				c.remove("p4")
				c.bring(podOf("q", gang...))
				c.pass(8 * time.Second)
				c.note("%d marked", c.marked())
				c.pass(2 * time.Second)
				c.note("%d marked", c.marked())
			},
			want: []string{"0 marked", "4 marked"},
		},
		"a group times out together, by its shortest wait time, and not where a gang runs": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				group := func(name string) []func(*podT) {
					return []func(*podT){of(name), needs(2), says(modeKey, "NonStrict"), says(groupsKey, `["a/x","a/y","a/z"]`)}
				}
				c.add(podsNamed("z", 1, append(group("z"), on("n"))...)...)
				c.add(podsNamed("x", 2, append(group("x"), says(waitKey, "5s"))...)...)
				c.add(podsNamed("y", 2, append(group("y"), says(waitKey, "1h"))...)...)
				c.add(podOf("z2", append(group("z"), only("nowhere"))...))
				c.outcome("room for three")
				c.pass(5 * time.Second)
				c.note("%d marked", c.marked())
				c.change("x", mutely(v1alpha1.TimeoutAnnotation))
				c.run()
				c.why("x")
				c.why("y")
			},
			want: []string{
				"room for three: a/x 2 planned, a/y 1 pending 1 planned, a/z 1 pending 1 bound",
				"4 marked",
				`GangIncomplete: gang "a/x" waits for its group: gang "a/y" has 0 of 2 members (and 2 timed out: ` + revive + `)`,
				`TimedOut: gang "a/y" did not reach its minimum of 2 members within 5s of holding the first; gang "a/y" has 0 of 2 members (and 2 timed out: ` + revive + `)`,
			},
		},
		"after a restart the annotation alone keeps members from being scheduled": {
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("train"), needs(2), says(v1alpha1.TimeoutAnnotation, "true"))...)
				c.pass(time.Minute)
				c.why("train")
				c.change("p1", mutely(v1alpha1.TimeoutAnnotation))
				c.outcome("one was revived")
				c.change("p2", mutely(v1alpha1.TimeoutAnnotation))
				c.outcome("both were")
			},
			want: []string{
				`TimedOut: gang "a/train" has 0 of 2 members (and 2 timed out: ` + revive + `)`,
				"one was revived: a/train 2 pending",
				"both were: a/train 2 bound",
			},
		},
		"whoever was told and did not hear is told again, ever more rarely": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("train"), needs(2))...)
				c.step()
				c.at["p2"] = parked // the queue lost it
				var told []time.Duration
				for range 130 {
					c.now = c.now.Add(time.Second)
					if e := c.s.Tick(c.now, c.turns.elsewhere.makes); len(e.Activate) > 0 {
						told = append(told, c.now.Sub(start))
					}
				}
				c.note("%v", told)
				c.offer("p2")
				c.outcome("it came")
			},
			want: []string{"[1s 3s 7s 15s 31s 1m3s 2m3s]", "it came: a/train 2 bound"},
		},
		"a member that was rejected before it waited is rejected again": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("train"), needs(2))...)
				c.step()
				c.reserving["p2"] = true
				c.node["p2"] = "n"
				c.do(c.s.Reserved("p2", "n", c.now))
				c.remove("p1")
				c.look("p2 is on its way to Permit")
				wait, _, e := c.s.Permitted("p2", c.now)
				delete(c.reserving, "p2")
				c.do(e)
				c.at["p2"] = held
				c.note("p2 waits: %t", wait)
				c.later(time.Second, "a second later")
			},
			want: []string{
				"p2 is on its way to Permit: a/train 1 returning", "p2 waits: true",
				"a second later: a/train 1 pending",
			},
		},
	})
}

func TestStoriesOfPolicies(t *testing.T) {
	job := func(policy string, changes ...func(*podT)) []func(*podT) {
		return append([]func(*podT){of("train"), needs(3), says(policyKey, policy)}, changes...)
	}
	tellStories(t, map[string]story{
		"once-satisfied: when all its pods are gone it is a gang again": {
			play: func(c *cluster) {
				c.describe("train", &gangspec.PodGroupDescription{Min: 3})
				c.bring(podsNamed("p", 3, of("train"))...)
				c.remove("p")
				c.add(podsNamed("q", 2, of("train"))...)
				c.outcome("two of three came")
				c.add(podOf("q3", of("train")))
				c.outcome("three of three")
			},
			want: []string{"two of three came: a/train 2 pending", "three of three: a/train 3 bound"},
		},
		"once-satisfied: members that are on their way out do not make a gang run": {
			play: func(c *cluster) {
				c.bring(podsNamed("p", 3, job("once-satisfied")...)...)
				c.change("p", dying)
				c.add(podsNamed("q", 2, job("once-satisfied")...)...)
				c.outcome("the old ones terminate, two of the new ones came")
				c.add(podOf("q3", job("once-satisfied")...))
				c.outcome("all came")
			},
			want: []string{"the old ones terminate, two of the new ones came: a/train 2 pending", "all came: a/train 3 bound"},
		},
		"waiting-and-running: a replacement is planned as long as the minimum is not met": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 3, job("waiting-and-running")...)...)
				c.remove("p1")
				c.remove("p2")
				c.add(podOf("q1", job("waiting-and-running")...))
				c.outcome("two lack one")
				c.why("train")
				c.add(podOf("q2", job("waiting-and-running")...))
				c.outcome("and there it is")
				c.add(podOf("q3", job("waiting-and-running")...))
				c.room["n"] = 4
				c.outcome("one above goes alone")
			},
			want: []string{
				"two lack one: a/train 1 pending 1 bound",
				`GangIncomplete: gang "a/train" has 2 of 3 members`,
				"and there it is: a/train 3 bound",
				"one above goes alone: a/train 4 bound",
			},
		},
		"only-waiting: what runs does not count": {
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, job("only-waiting")...)...)
				c.outcome("three came")
				c.add(podsNamed("q", 2, job("only-waiting")...)...)
				c.outcome("two more")
				c.add(podOf("q3", job("only-waiting")...))
				c.outcome("three more")
			},
			want: []string{
				"three came: a/train 3 bound", "two more: a/train 2 pending 3 bound", "three more: a/train 6 bound",
			},
		},
		"roles: a gang whose minimum is below their sum is elastic, and they do not bind it": {
			play: func(c *cluster) {
				c.add(podsNamed("w", 3, job("once-satisfied", says(rolesKey, `{"ps":1,"worker":3}`), as("worker"))...)...)
				c.outcome("workers only")
			},
			want: []string{
				`event on w1: scheduling.lockstep.dev/min-by-role: "{\"ps\":1,\"worker\":3}" is not within the minimum of 3: its sum is 4; using no minimum by role: members of any roles start the gang`,
				"workers only: a/train 3 bound",
			},
		},
		"roles: when a member whose role is short fails on its node, another of the role is planned": {
			room: map[string]int{"n": 9, "ps": 1, "x": 1},
			play: func(c *cluster) {
				roles := says(rolesKey, `{"ps":1}`)
				c.add(podsNamed("w", 5, job("once-satisfied", roles, as("worker"))...)...)
				c.add(podOf("z1", job("once-satisfied", roles, as("ps"), only("ps"))...))
				c.step()
				c.look("all planned")
				c.room["ps"] = 0
				c.add(podOf("z2", job("once-satisfied", roles, as("ps"), only("x"))...))
				c.outcome("the other ps took over")
			},
			want: []string{
				"all planned: a/train 5 planned 1 held",
				"the other ps took over: a/train 1 pending 6 bound",
			},
		},
		"a member that succeeded counts for its role": {
			play: func(c *cluster) {
				roles := says(rolesKey, `{"launcher":1,"worker":2}`)
				c.add(podOf("l", job("waiting-and-running", roles, as("launcher"), owned("job"))...))
				c.bring(podsNamed("w", 2, job("waiting-and-running", roles, as("worker"), owned("job"))...)...)
				c.finish("l")
				c.remove("w1")
				c.add(podOf("w3", job("waiting-and-running", roles, as("worker"), owned("job"))...))
				c.outcome("a worker came again")
			},
			want: []string{"a worker came again: a/train 2 bound"},
		},
		"when the minimum has succeeded the rest goes alone": {
			play: func(c *cluster) {
				c.bring(podsNamed("p", 3, job("once-satisfied", owned("job"))...)...)
				c.finish("p")
				c.add(podOf("q", job("once-satisfied", owned("job"))...))
				c.outcome("the fourth completion")
			},
			want: []string{"the fourth completion: a/train 1 bound"},
		},
		"the newest member tells the owner, in whatever order members are seen": {
			play: func(c *cluster) {
				old := podsNamed("p", 3, job("once-satisfied", owned("job"), on("n"), aged(time.Hour))...)
				for _, pod := range old[:2] {
					c.do(c.s.ObservePod(edit(pod, ended(0)), c.now))
				}
				c.add(podsNamed("q", 1, job("once-satisfied", owned("again"))...)...)
				c.add(edit(old[2], dying))
				c.outcome("what succeeded belongs to the old job")
			},
			want: []string{"what succeeded belongs to the old job: a/train 1 pending"},
		},
		"a succeeded pod that is moved to another gang counts there": {
			play: func(c *cluster) {
				p := podOf("p", job("once-satisfied", owned("job"), on("n"), ended(0))...)
				c.do(c.s.ObservePod(p, c.now))
				c.do(c.s.ObservePod(p, c.now))
				c.do(c.s.ObservePod(edit(p, of("other")), c.now))
				c.look("moved")
			},
			want: []string{"moved: a/other empty"},
		},
	})
}
