package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

func names(pods []*v1.Pod) []string {
	var out []string
	for _, pod := range pods {
		out = append(out, pod.Name)
	}
	return out
}

// asked plays a cluster and returns what ask finds then.
func asked[T any](t *testing.T, room map[string]int, play func(*cluster), ask func(*Gangs) T) T {
	t.Helper()
	c := newCluster(t, room)
	play(c)
	return ask(c.s)
}

func TestExplain(t *testing.T) {
	type explanation struct {
		Known           bool
		Object          types.UID
		Reason, Message string
		Pending         []string
		Age             time.Duration
	}
	ask := func(s *Gangs) explanation {
		e, ok := s.Explain(gangspec.Key{Namespace: "a", Name: "train"})
		got := explanation{Known: ok, Object: e.Object.UID, Reason: e.Reason, Message: e.Message, Pending: names(e.Pending)}
		if ok {
			got.Age = start.Sub(e.Created)
		}
		return got
	}
	for sentence, c := range map[string]struct {
		room map[string]int
		play func(*cluster)
		want explanation
	}{
		"a gang that nobody has heard of": {play: func(*cluster) {}},
		"a gang as old as its oldest member": {
			play: func(c *cluster) {
				c.add(podOf("p1", of("train"), needs(3)), podOf("p2", of("train"), needs(3), aged(time.Hour)))
			},
			want: explanation{Known: true, Reason: "GangIncomplete", Message: `gang "a/train" has 2 of 3 members`, Pending: []string{"p2", "p1"}, Age: time.Hour},
		},
		"a gang as old as its PodGroup, which is there": {
			play: func(c *cluster) {
				c.add(podOf("p1", of("train"), aged(time.Hour)))
				c.describe("train", &gangspec.PodGroupDescription{UID: "u", Min: 2})
			},
			want: explanation{Known: true, Object: "u", Reason: "GangIncomplete", Message: `gang "a/train" has 1 of 2 members`, Pending: []string{"p1"}},
		},
		"a gang whose pods state no minimum": {
			play: func(c *cluster) { c.add(podOf("p1", of("train"), aged(time.Hour))) },
			want: explanation{
				Known: true, Reason: "GangUndefined", Pending: []string{"p1"}, Age: time.Hour,
				Message: `gang "a/train" has no minimum: set the annotation ` + minKey + ` on its pods`,
			},
		},
		"what is being deleted waits for nothing": {
			play: func(c *cluster) {
				c.add(podOf("p1", of("train"), needs(3)), podOf("p2", of("train"), needs(3), dying))
			},
			want: explanation{Known: true, Reason: "GangIncomplete", Message: `gang "a/train" has 1 of 3 members`, Pending: []string{"p1"}},
		},
		"a gang that is being deleted, and its PodGroup went first": {
			play: func(c *cluster) { c.add(podOf("p1", of("train")), podOf("p2", of("train"), dying)) },
			want: explanation{Known: true},
		},
		"a gang that is about to be planned needs no explanation": {
			room: map[string]int{"n": 9},
			play: func(c *cluster) { c.add(podsNamed("p", 2, of("train"), needs(2))...) },
			want: explanation{Known: true, Pending: []string{"p1", "p2"}},
		},
		"a gang that runs needs none for what is above its minimum": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 3, of("train"), needs(2))...)
			},
			want: explanation{Known: true, Pending: []string{"p3"}},
		},
		"a gang that was tried says why it failed, for as long as nothing else did": {
			room: map[string]int{"n": 1},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("train"), needs(2))...)
				c.changed()
				c.now = c.now.Add(time.Second)
				c.tick() // it is about to be tried again
			},
			want: explanation{
				Known: true, Reason: "Unschedulable", Pending: []string{"p1", "p2"},
				Message: `gang "a/train": 1 of 2 members fit`,
			},
		},
		"an old failure is not told of a gang that has come together anew": {
			room: map[string]int{"n": 1},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("train"), needs(2))...)
				c.remove("p2")
				c.add(podOf("p3", of("train"), needs(2)))
			},
			want: explanation{Known: true, Pending: []string{"p1", "p3"}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, asked(t, c.room, c.play, ask)); diff != "" {
				t.Errorf("explanation (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCount(t *testing.T) {
	got := asked(t, map[string]int{"n": 5}, func(c *cluster) {
		c.bring(podsNamed("r", 3, of("runs"), needs(2))...)
		c.bring(podsNamed("h", 4, of("hoards"), needs(4), says(modeKey, "NonStrict"))...)
		c.bring(podsNamed("u", 2, of("unfit"), needs(2))...)
		c.add(podsNamed("i", 1, of("incomplete"), needs(2))...)
		c.add(podsNamed("t", 2, of("timedout"), needs(2), says(v1alpha1.TimeoutAnnotation, "true"))...)
		c.add(podsNamed("q", 1, of("ready"), needs(1))...)
	}, (*Gangs).Count)
	want := Counts{Held: 2, Incomplete: 1, Unschedulable: 3, Running: 1, Oldest: start}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

func TestPosition(t *testing.T) {
	type position struct {
		turns.Rank
		OK bool
	}
	gang := func(name string) []func(*podT) {
		return []func(*podT){of(name), needs(2), says(groupsKey, `["a/x","a/y"]`)}
	}
	for sentence, c := range map[string]struct {
		play func(*cluster)
		want position
	}{
		"a pod outside gangs has none": {
			play: func(c *cluster) { c.add(podOf("p")) },
		},
		"the members of a group stand together, where the oldest would": {
			play: func(c *cluster) {
				c.add(podOf("x1", append(gang("x"), aged(time.Hour))...), podOf("p", gang("y")...))
			},
			want: position{turns.Rank{Created: start.Add(-time.Hour), Name: "a/x"}, true},
		},
		"a gang keeps its position when its oldest member goes": {
			play: func(c *cluster) {
				c.add(podOf("old", of("x"), needs(2), aged(time.Hour)), podOf("p", of("x"), needs(2)))
				c.remove("old")
			},
			want: position{turns.Rank{Created: start.Add(-time.Hour), Name: "a/x"}, true},
		},
		"a member above the minimum is an extra": {
			play: func(c *cluster) {
				c.add(podsNamed("r", 2, of("x"), needs(2), on("n"))...)
				c.add(podOf("p", of("x"), needs(2)))
			},
			want: position{turns.Rank{Created: start, Name: "a/x", Surplus: true}, true},
		},
		"a member without which the gang runs in vain comes first": {
			play: func(c *cluster) {
				c.add(podsNamed("r", 1, of("x"), needs(2), on("n"))...)
				c.add(podOf("p", of("x"), needs(2)))
			},
			want: position{turns.Rank{Begun: true, Created: start, Name: "a/x"}, true},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := asked(t, nil, c.play, func(s *Gangs) (got position) {
				if m := s.members["p"]; m != nil {
					got = position{m.rank(), true}
				}
				return got
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("position (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOldestWait(t *testing.T) {
	three := func(c *cluster) {
		c.bring(podsNamed("p", 3, of("train"), needs(3))...)
		c.pass(time.Minute)
	}
	for sentence, c := range map[string]struct {
		play func(*cluster)
		// want is since when, counted from the start.
		want  time.Duration
		waits bool
	}{
		"an incomplete gang does not wait for nodes": {play: func(c *cluster) {
			c.bring(podsNamed("p", 2, of("train"), needs(3))...)
			c.pass(time.Minute)
		}},
		"a complete gang waits since it was complete, however often it was tried": {play: func(c *cluster) {
			c.add(podsNamed("p", 2, of("train"), needs(3))...)
			c.pass(time.Minute)
			c.bring(podOf("q", of("train"), needs(3)))
			c.pass(time.Minute)
		}, waits: true, want: time.Minute},
		"of two that wait the older one counts": {play: func(c *cluster) {
			three(c)
			c.bring(podsNamed("q", 3, of("other"), needs(3))...)
		}, waits: true},
		"a gang that runs does not wait": {play: func(c *cluster) {
			three(c)
			c.grow("n", 1)
			c.pass(time.Minute)
		}},
		"a gang that has lost a member waits for that": {play: func(c *cluster) {
			three(c)
			c.remove("p1")
		}},
		"a gang that is complete again has waited since then": {play: func(c *cluster) {
			three(c)
			c.remove("p1")
			c.bring(podOf("q", of("train"), needs(3)))
		}, waits: true, want: time.Minute},
	} {
		got := asked(t, map[string]int{"n": 2}, c.play, func(s *Gangs) time.Time { return s.Count().Oldest })
		if got.IsZero() == c.waits || c.waits && got.Sub(start) != c.want {
			t.Errorf("%s: since %s, want %s after %s (%t)", sentence, got, c.want, start, c.waits)
		}
	}
}
