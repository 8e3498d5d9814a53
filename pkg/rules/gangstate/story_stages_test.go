package gangstate

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestStoriesOfStages: what a workload makes later starts as a whole, besides what runs.
func TestStoriesOfStages(t *testing.T) {
	staged := func(minimum int, stages string, more ...func(*v1.Pod)) []func(*v1.Pod) {
		return append([]func(*v1.Pod){of("x"), needs(minimum), says(v1alpha1.StagesAnnotation, stages)}, more...)
	}
	tellStories(t, map[string]story{
		"the workers start without the launcher, which is made when they run": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.bring(podsNamed("w", 1, staged(3, "2,1")...)...)
				c.why("x")
				c.add(podsNamed("v", 1, staged(3, "2,1")...)...)
				c.outcome("workers")
				c.footprint("x")
				c.add(podsNamed("l", 1, staged(3, "2,1")...)...)
				c.outcome("no room for the launcher")
				c.why("x")
				w, _ := c.s.Wants(c.pods["l1"])
				c.note("%d to place, begun: %t", len(w.Pods), w.Begun)
				c.grow("n", 1)
				c.later(time.Second, "room")
				c.footprint("x")
			},
			want: []string{
				`GangIncomplete: gang "a/x" has 1 of 2 members for stage 1 of 2`,
				"workers: a/x 2 bound",
				"x: 2 run of min 2, map[] by role, broken for 0s",
				"no room for the launcher: a/x 1 pending 2 bound",
				`Unschedulable: gang "a/x": 0 of 1 members fit`,
				"1 to place, begun: true",
				"room: a/x 3 bound",
				"x: 3 run of min 3, map[] by role, broken for 0s",
			},
		},
		"the second stage starts as a whole, or not at all": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.bring(podsNamed("i", 1, staged(4, "1,3", owned("set"))...)...)
				c.finish("i")
				c.look("initialized")
				c.add(podsNamed("p", 2, staged(4, "1,3", owned("set"))...)...)
				c.outcome("two of three are made")
				c.why("x")
				c.add(podsNamed("q", 1, staged(4, "1,3", owned("set"))...)...)
				c.outcome("room for two")
				c.grow("n", 1)
				c.later(time.Second, "room for three")
				c.remove("p1")
				c.add(podOf("r", staged(4, "1,3", owned("set"))...))
				c.outcome("a replacement goes alone")
			},
			want: []string{
				"initialized: a/x empty",
				"two of three are made: a/x 2 pending",
				`GangIncomplete: gang "a/x" has 3 of 4 members for stage 2 of 2`,
				"room for two: a/x 3 pending",
				"room for three: a/x 3 bound",
				"a replacement goes alone: a/x 3 bound",
			},
		},
		"a scheduler that begins knows the stage": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.s.closed = true
				c.add(podsNamed("b", 1, staged(4, "1,3", bindTo("n", time.Second))...)...)
				c.add(podsNamed("p", 3, staged(4, "1,3", aged(-2*time.Second))...)...)
				c.do(c.s.Open(c.now))
				c.outcome("room for one of three")
				c.grow("n", 2)
				c.later(time.Second, "room for all")
				c.remove("p")
				c.remove("b")
				c.add(podsNamed("c", 1, staged(4, "1,3")...)...)
				c.outcome("anew")
			},
			want: []string{
				"room for one of three: a/x 3 pending 1 bound",
				"room for all: a/x 4 bound",
				"anew: a/x 1 bound",
			},
		},
		"members that all run are of the last stage": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.s.closed = true
				c.add(podsNamed("b", 3, staged(3, "2,1", bindTo("n", time.Second))...)...)
				c.do(c.s.Open(c.now))
				c.footprint("x")
			},
			want: []string{"x: 3 run of min 3, map[] by role, broken for 0s"},
		},
	})
}

func TestReached(t *testing.T) {
	for _, c := range []struct {
		stages              gangspec.Stages
		standing, all, want int
	}{
		{stages: nil, standing: 3, all: 5, want: 0},
		{stages: gangspec.Stages{2, 3}, standing: 0, all: 3, want: 0},
		{stages: gangspec.Stages{2, 3}, standing: 1, all: 5, want: 0},
		{stages: gangspec.Stages{2, 3}, standing: 2, all: 2, want: 0},
		{stages: gangspec.Stages{2, 3}, standing: 2, all: 3, want: 1},
		{stages: gangspec.Stages{2, 3}, standing: 3, all: 3, want: 1},
		{stages: gangspec.Stages{2, 3, 9}, standing: 3, all: 4, want: 2},
		{stages: gangspec.Stages{2, 3, 4}, standing: 5, all: 9, want: 2},
	} {
		if got := c.stages.Reached(c.standing, c.all); got != c.want {
			t.Errorf("%v, %d of %d standing: got stage %d, want %d", c.stages, c.standing, c.all, got, c.want)
		}
	}
}

func TestParseStages(t *testing.T) {
	for _, c := range []struct {
		min   int32
		value string
		want  gangspec.Stages
		bad   bool
	}{
		{min: 3, value: "2,1", want: gangspec.Stages{2, 3}},
		{min: 3, value: " 1, 1 ,1", want: gangspec.Stages{1, 2, 3}},
		{min: 3, value: "2,4", want: gangspec.Stages{2, 3}},
		{min: 3, value: "2,1,5", want: gangspec.Stages{2, 3}},
		{min: 3, value: "3"},
		{min: 3, value: "4,2"},
		{min: 0, value: "4,2"},
		{min: 3, value: ""},
		{min: 3, value: "1,1", bad: true},
		{min: 3, value: "2,", bad: true},
		{min: 3, value: "0,3", bad: true},
		{min: 3, value: "-1,4", bad: true},
		{min: 3, value: "2;1", bad: true},
		{min: 3, value: "100000,99999999999999999999", bad: true},
	} {
		spec, problems := gangspec.Parse(gangspec.Key{Namespace: "a", Name: "x"}, &gangspec.PodGroupDescription{Min: c.min, Annotations: values{v1alpha1.StagesAnnotation: c.value}}, nil, gangspec.Defaults{})
		if !slices.Equal(spec.Stages, c.want) || (len(problems) > 0) != c.bad {
			t.Errorf("%q: got %v and %v, want %v, bad: %t", c.value, spec.Stages, problems, c.want, c.bad)
		}
	}
}
