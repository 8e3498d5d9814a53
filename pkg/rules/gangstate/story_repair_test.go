package gangstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// footprint notes what runs of a gang.
func (c *cluster) footprint(name string) {
	f := c.s.RunningGangs(gangspec.Key{Namespace: "a", Name: name})[0]
	broken := time.Duration(0)
	if !f.BrokenSince.IsZero() {
		broken = c.now.Sub(f.BrokenSince)
	}
	c.note("%s: %d run of min %d, %v by role, broken for %s", name, len(f.Running), f.Min, f.MinByRole, broken)
}

// grows notes whether a gang grows.
func (c *cluster) grows(name string) {
	c.note("it grows: %t", c.s.gangs[gangspec.Key{Namespace: "a", Name: name}].grows())
}

// kept notes how many members of a gang are counted off and gone.
func (c *cluster) kept(name string) {
	c.note("kept: %d", c.s.RunningGangs(gangspec.Key{Namespace: "a", Name: name})[0].Gone)
}

// growsThenLoses lets gang x wait for an hour for what it grows by, and then lose a member.
func (c *cluster) growsThenLoses() {
	c.pass(time.Hour)
	c.grows("x")
	c.change("p2", dying)
	c.grows("x")
	c.footprint("x")
}

// evicting is a pod with the mark of an eviction, or with one that was taken back.
func evicting(is v1.ConditionStatus) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.PodEvicting, Status: is}} }
}

// TestStoriesOfRepair: a gang is broken from when it is below its minimum.
func TestStoriesOfRepair(t *testing.T) {
	tellStories(t, map[string]story{
		"from when it lost a member until it has its minimum again": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 3, of("x"), needs(3))...)
				c.footprint("x")
				c.until("p3", Released)
				c.footprint("x")
				c.run()
				c.pass(time.Minute)
				c.footprint("x")
				c.change("p1", dying)
				c.pass(20 * time.Second)
				c.footprint("x")
				c.remove("p1")
				c.remove("p2")
				c.pass(10 * time.Second)
				c.footprint("x")
				c.bring(podsNamed("q", 2, of("x"), needs(3))...)
				c.footprint("x")
				c.note("broken: %t", !c.s.RunningGangs(gangspec.Key{Namespace: "a", Name: "x"})[0].BrokenSince.IsZero())
			},
			want: []string{
				"x: 0 run of min 3, map[] by role, broken for 0s",
				"x: 3 run of min 3, map[] by role, broken for 0s",
				"x: 3 run of min 3, map[] by role, broken for 0s",
				"x: 2 run of min 3, map[] by role, broken for 20s",
				"x: 1 run of min 3, map[] by role, broken for 30s",
				"x: 3 run of min 3, map[] by role, broken for 0s",
				"broken: false",
			},
		},
		"while members are being evicted none comes": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 2, of("x"), needs(2))...)
				c.bring(podOf("q", of("x"), needs(2), aged(-time.Minute)))
				c.change("p1", evicting(v1.ConditionTrue))
				c.grow("n", 1)
				c.outcome("one is marked")
				c.change("p1", evicting(v1.ConditionFalse))
				c.outcome("the mark is taken back")
				c.change("p", evicting(v1.ConditionTrue))
				c.add(podOf("r", of("x"), needs(2), aged(-time.Minute)))
				c.grow("n", 1)
				c.remove("p1")
				c.outcome("one is gone")
			},
			want: []string{
				"one is marked: a/x 1 pending 2 bound",
				"the mark is taken back: a/x 3 bound",
				"one is gone: a/x 1 pending 2 bound",
			},
		},
		"after a restart, from when that was seen": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.add(podsNamed("p", 2, of("x"), needs(3), bindTo("n", -time.Hour), aged(2*time.Hour))...)
				c.pass(10 * time.Second)
				c.footprint("x")
				c.grows("x")
			},
			want: []string{"x: 2 run of min 3, map[] by role, broken for 10s", "it grows: false"},
		},
		"of a gang whose minimum was raised an hour ago, from when it lost a member": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.describe("x", &gangspec.PodGroupDescription{Min: 2})
				c.bring(podsNamed("p", 2, labeled(v1alpha1.PodGroupLabel, "x"))...)
				c.describe("x", &gangspec.PodGroupDescription{Min: 3})
				c.bring(podsNamed("q", 1, labeled(v1alpha1.PodGroupLabel, "x"), born(time.Minute))...)
				c.growsThenLoses()
			},
			want: []string{"it grows: true", "it grows: false", "x: 1 run of min 3, map[] by role, broken for 0s"},
		},
		"of a gang whose last stage waits for room, from when it lost a member": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.describe("x", &gangspec.PodGroupDescription{Min: 3, Annotations: values{v1alpha1.StagesAnnotation: "2,1"}})
				c.bring(podsNamed("p", 2, labeled(v1alpha1.PodGroupLabel, "x"))...)
				c.bring(podsNamed("q", 1, labeled(v1alpha1.PodGroupLabel, "x"), born(time.Minute))...)
				c.growsThenLoses()
			},
			want: []string{"it grows: true", "it grows: false", "x: 1 run of min 2, map[] by role, broken for 0s"},
		},
		"after a restart, of one of which the rest waits and may never have run": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.s.closed = true
				c.describe("x", &gangspec.PodGroupDescription{Min: 3})
				c.add(podsNamed("p", 2, labeled(v1alpha1.PodGroupLabel, "x"), bindTo("n", time.Second))...)
				c.add(podsNamed("q", 1, labeled(v1alpha1.PodGroupLabel, "x"), born(time.Minute))...)
				c.do(c.s.Open(c.now))
				c.run()
				c.growsThenLoses()
			},
			want: []string{"it grows: true", "it grows: false", "x: 1 run of min 3, map[] by role, broken for 0s"},
		},
		"after a restart, of one whose last stage waits for room": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.s.closed = true
				c.describe("x", &gangspec.PodGroupDescription{Min: 3, Annotations: values{v1alpha1.StagesAnnotation: "2,1"}})
				c.add(podsNamed("p", 2, labeled(v1alpha1.PodGroupLabel, "x"), bindTo("n", time.Second))...)
				c.add(podsNamed("q", 1, labeled(v1alpha1.PodGroupLabel, "x"), born(time.Minute))...)
				c.do(c.s.Open(c.now))
				c.run()
				c.growsThenLoses()
			},
			want: []string{"it grows: true", "it grows: false", "x: 1 run of min 2, map[] by role, broken for 0s"},
		},
		"until its PodGroup asks for no more than what runs": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("x", &gangspec.PodGroupDescription{Min: 4})
				c.bring(podsNamed("p", 4, of("x"))...)
				c.remove("p1")
				c.remove("p2")
				c.pass(2 * time.Minute)
				c.footprint("x")
				c.describe("x", &gangspec.PodGroupDescription{Min: 4, Annotations: values{minKey: "2"}})
				c.footprint("x")
				c.note("broken: %t", !c.s.RunningGangs(gangspec.Key{Namespace: "a", Name: "x"})[0].BrokenSince.IsZero())
				c.remove("p")
				c.room["n"] = 2
				c.add(podsNamed("q", 2, of("x"))...)
				c.outcome("made anew")
			},
			want: []string{
				"x: 2 run of min 4, map[] by role, broken for 2m0s",
				"x: 2 run of min 2, map[] by role, broken for 0s",
				"broken: false",
				"made anew: a/x 2 bound",
			},
		},
		"nothing of it runs any more, and nothing is broken": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.bring(podsNamed("p", 3, of("x"), needs(3))...)
				c.remove("p1")
				c.pass(time.Second)
				c.remove("p")
				c.add(podOf("q", of("x"), needs(3)))
				c.footprint("x")
			},
			want: []string{"x: 0 run of min 3, map[] by role, broken for 0s"},
		},
	})
}
