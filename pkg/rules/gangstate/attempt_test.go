package gangstate

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// told is a visit in the terms of a test.
type told struct {
	Verdict Verdict
	Reason  bool
	Group   string
	Node    string
	Strict  bool
	Members int
	Gangs   []toldNeed
}

type toldNeed struct {
	Gang    string
	Min     int
	Roles   map[string]int
	Pending string
	Placed  string // in-plan places have a star
}

func tell(v Cycle) told {
	got := told{Verdict: v.Verdict, Reason: v.Reason != "", Group: v.Group, Node: v.Node}
	needs := []Need{}
	if v.Attempt != nil {
		got.Strict, got.Members, needs = v.Attempt.Strict, v.Attempt.Members(), v.Attempt.Gangs
	}
	if v.Need != nil {
		needs = append(needs, *v.Need)
	}
	for _, need := range needs {
		var placed []string
		for _, p := range need.Placed {
			star := ""
			if p.InPlan {
				star = "*"
			}
			placed = append(placed, p.Pod.Name+"@"+p.Node+star)
		}
		got.Gangs = append(got.Gangs, toldNeed{
			Gang: need.Key.String(), Min: need.Min, Roles: need.MinByRole,
			Pending: strings.Join(names(need.Pending), " "), Placed: strings.Join(placed, " "),
		})
	}
	return got
}

func TestVisit(t *testing.T) {
	for sentence, c := range map[string]struct {
		room  map[string]int
		play  func(*cluster)
		visit string
		want  told
	}{
		"a pod outside gangs": {
			play:  func(c *cluster) { c.add(podOf("p1")) },
			visit: "p1",
			want:  told{Verdict: Outside},
		},
		"a member that was not seen yet waits": {
			play:  func(c *cluster) { c.pods["p1"] = podOf("p1", of("x"), needs(1)) },
			visit: "p1",
			want:  told{Verdict: Wait, Reason: true},
		},
		"a member of an incomplete gang waits": {
			play:  func(c *cluster) { c.add(podOf("p1", of("x"), needs(2))) },
			visit: "p1",
			want:  told{Verdict: Wait, Reason: true, Group: "a/x"},
		},
		"the leader plans who may be placed, in order, and only those": {
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("x"), needs(2))...)
				c.add(podOf("g", of("x"), gated), podOf("d", of("x"), dying), podOf("u", of("x"), urgent(7)))
			},
			visit: "u",
			want:  told{Verdict: Lead, Group: "a/x", Strict: true, Members: 2, Gangs: []toldNeed{{Gang: "a/x", Min: 2, Pending: "u p1 p2 p3"}}},
		},
		"who does not lead waits": {
			play:  func(c *cluster) { c.add(podsNamed("p", 2, of("x"), needs(2))...) },
			visit: "p2",
			want:  told{Verdict: Wait, Reason: true, Group: "a/x"},
		},
		"an attempt has all gangs of the group, also those that run": {
			room: map[string]int{"n": 1},
			play: func(c *cluster) {
				c.add(podsNamed("x", 1, of("x"), needs(1), says(groupsKey, `["a/y"]`), on("n"))...)
				c.add(podsNamed("y", 2, of("y"), needs(2), says(groupsKey, `["a/x"]`), says(modeKey, "NonStrict"))...)
			},
			visit: "y1",
			want: told{Verdict: Lead, Group: "a/x", Strict: true, Members: 2, Gangs: []toldNeed{
				{Gang: "a/x", Placed: "x1@n"}, {Gang: "a/y", Min: 2, Pending: "y1 y2"},
			}},
		},
		"an attempt asks for what accumulated holds do not cover, role by role": {
			room: map[string]int{"n": 1, "m": 1},
			play: func(c *cluster) {
				gang := []func(*podT){of("x"), needs(4), says(modeKey, "NonStrict"), says(rolesKey, `{"ps":2,"w":1}`)}
				c.add(podsNamed("w", 3, append(gang, as("w"), only("n"))...)...)
				c.bring(podsNamed("ps", 2, append(gang, as("ps"), only("m"))...)...)
				c.changed()
				c.now = c.now.Add(time.Second)
				c.tick()
			},
			visit: "ps2",
			want: told{Verdict: Lead, Group: "a/x", Members: 2, Gangs: []toldNeed{
				{Gang: "a/x", Min: 2, Roles: map[string]int{"ps": 1}, Pending: "ps2 w2 w3", Placed: "ps1@m* w1@n*"},
			}},
		},
		"roles that are short ask for more than the minimum does": {
			room: map[string]int{"n": 4, "m": 0},
			play: func(c *cluster) {
				gang := []func(*podT){of("x"), needs(4), says(modeKey, "NonStrict"), says(rolesKey, `{"ps":2}`)}
				c.add(podsNamed("w", 4, append(gang, as("w"), only("n"))...)...)
				c.bring(podsNamed("ps", 2, append(gang, as("ps"), only("m"))...)...)
				c.changed()
				c.now = c.now.Add(time.Second)
				c.tick()
			},
			visit: "ps1",
			want: told{Verdict: Lead, Group: "a/x", Members: 2, Gangs: []toldNeed{
				{Gang: "a/x", Min: 2, Roles: map[string]int{"ps": 2}, Pending: "ps1 ps2", Placed: "w1@n* w2@n* w3@n* w4@n*"},
			}},
		},
		"a planned member follows": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("x"), needs(3))...)
				c.step()
			},
			visit: "p2",
			want:  told{Verdict: Follow, Group: "a/x", Node: "n"},
		},
		"a member of a running gang goes alone, and need not know where the others are": {
			play: func(c *cluster) {
				c.add(podsNamed("r", 2, of("x"), needs(2), on("n"))...)
				c.add(podOf("p", of("x"), needs(2)))
			},
			visit: "p",
			want:  told{Verdict: Alone, Group: "a/x", Gangs: []toldNeed{{Gang: "a/x"}}},
		},
		"with a topology it does, but for those on their way out": {
			play: func(c *cluster) {
				c.add(podsNamed("r", 2, of("x"), needs(2), on("n"), says(requiredKey, "rack"))...)
				c.add(podOf("s", of("x"), on("m"), dying))
				c.add(podOf("z", of("x"), needs(2)))
			},
			visit: "z",
			want:  told{Verdict: Alone, Group: "a/x", Gangs: []toldNeed{{Gang: "a/x", Placed: "r1@n r2@n"}}},
		},
		"a member that is being deleted waits": {
			play: func(c *cluster) {
				c.add(podsNamed("r", 2, of("x"), needs(2), on("n"))...)
				c.add(podOf("p", of("x"), needs(2), dying))
			},
			visit: "p",
			want:  told{Verdict: Wait, Reason: true, Group: "a/x"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			cluster := newCluster(t, c.room)
			c.play(cluster)
			cluster.retry()
			got := tell(cluster.s.BeginCycle(cluster.pods[types.UID(c.visit)]))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("visit of %s (-want +got):\n%s", c.visit, diff)
			}
		})
	}
}

func TestRivals(t *testing.T) {
	hoard := func(c *cluster, name string, changes ...func(*podT)) {
		c.room["n"]++
		c.bring(podsNamed(name, 9, append([]func(*podT){of(name), needs(9), says(modeKey, "NonStrict")}, changes...)...)...)
	}
	c := newCluster(t, map[string]int{"n": 0})
	hoard(c, "young")
	hoard(c, "old", aged(time.Hour))
	hoard(c, "older", aged(2*time.Hour))
	hoard(c, "urgent", urgent(9))
	hoard(c, "mixed", says(policyKey, "waiting-and-running"))
	c.add(podOf("runs", of("mixed"), urgent(9), on("m"))) // that one does not wait, and its gang has begun
	c.add(podsNamed("me", 2, of("me"), needs(2), aged(90*time.Minute))...)
	c.retry()
	v := c.s.BeginCycle(c.pods["me1"])
	alike := v.Attempt.Rank
	for sentence, queues := range map[string]struct {
		of    map[string]int             // the place of a group's queue, the first to be served the lowest
		there map[hold.Holder]turns.Rank // of other profiles
		want  []string
	}{
		"in one queue the last in rank goes first":       {want: []string{"m/a/young", "m/a/old"}},
		"a queue that is served later goes first":        {of: map[string]int{"a/old": 1}, want: []string{"m/a/old", "m/a/young"}},
		"rank does not help in such a queue":             {of: map[string]int{"a/urgent": 2, "a/older": 1}, want: []string{"m/a/urgent", "m/a/older", "m/a/young", "m/a/old"}},
		"nor does it hurt in one that is served earlier": {of: map[string]int{"a/young": -1}, want: []string{"m/a/old"}},
		"other profiles are ordered with this one": {
			there: map[hold.Holder]turns.Rank{
				{Profile: "l", Group: "a/b"}: {Created: alike.Created.Add(time.Minute)}, {Profile: "l", Group: "a/c"}: {Created: alike.Created.Add(-time.Minute)},
			},
			want: []string{"m/a/young", "m/a/old", "l/a/b"},
		},
		"profiles decide between those that are alike": {
			there: map[hold.Holder]turns.Rank{{Profile: "l", Group: "a/me"}: alike, {Profile: "n", Group: "a/me"}: alike},
			want:  []string{"m/a/young", "m/a/old", "n/a/me"},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			groups := map[hold.Holder]turns.Rank{}
			maps.Copy(groups, queues.there)
			for _, rank := range c.s.PartialHolders() {
				groups[hold.Holder{Profile: "m", Group: rank.Name}] = rank
			}
			order := func(a, b hold.Holder) int { return queues.of[a.Group] - queues.of[b.Group] }
			var got []string
			for _, holder := range v.Attempt.Outranks(hold.Holder{Profile: "m", Group: v.Attempt.Group}, groups, order) {
				got = append(got, holder.String())
			}
			if diff := cmp.Diff(queues.want, got); diff != "" {
				t.Errorf("those it outranks, the last first (-want +got):\n%s", diff)
			}
		})
	}
}

// outranked returns the groups that an attempt outranks where there is one profile, and one queue.
func outranked(s *Gangs, a *Attempt) (names []string) {
	groups := map[hold.Holder]turns.Rank{}
	for _, rank := range s.PartialHolders() {
		groups[hold.Holder{Group: rank.Name}] = rank
	}
	for _, holder := range a.Outranks(hold.Holder{Group: a.Group}, groups, func(_, _ hold.Holder) int { return 0 }) {
		names = append(names, holder.Group)
	}
	return names
}

func TestClosed(t *testing.T) {
	tellStories(t, map[string]story{
		"while it does not know everything nobody is let through": {
			play: func(c *cluster) {
				c.s.closed = true
				c.add(podsNamed("p", 2, of("x"), needs(2))...)
				c.add(podOf("e", of("y"), needs(2)), podOf("r", of("y"), needs(2), on("n")))
				c.outcome("closed")
				c.do(c.s.Open(c.now))
				c.outcome("open")
			},
			want: []string{"closed: a/x 2 pending, a/y 1 pending 1 bound", "open: a/x 2 bound, a/y 2 bound"},
		},
	})
}

func TestStarted(t *testing.T) {
	c := newCluster(t, map[string]int{"n": 2})
	c.add(podsNamed("p", 3, of("x"), needs(2))...)
	c.now = c.now.Add(3 * time.Second)
	var got []time.Duration
	for id := range c.s.members {
		c.node[id] = "n"
		c.s.Reserved(id, "n", c.now)
		c.s.Permitted(id, c.now)
	}
	for id := range c.s.members {
		c.now = c.now.Add(time.Second)
		e := c.s.BoundTo(id, c.now)
		got = append(got, e.Started...)
	}
	if diff := cmp.Diff([]time.Duration{5 * time.Second}, got); diff != "" {
		t.Errorf("how long the gang took to start, told once (-want +got):\n%s", diff)
	}
}
