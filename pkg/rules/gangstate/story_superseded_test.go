package gangstate

import (
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// byGroup puts a pod in group 0 of the LeaderWorkerSet serve.
func byGroup(index string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations[v1alpha1.GangAnnotation] = v1alpha1.GangOwner
		p.Labels[v1alpha1.LeaderWorkerSetNameLabel], p.Labels[v1alpha1.LeaderWorkerGroupLabel], p.Labels[v1alpha1.LeaderWorkerIndexLabel] = "serve", "0", index
	}
}

// inAttempt makes a pod one of an attempt of a JobSet.
func inAttempt(attempt string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Labels[v1alpha1.JobSetUIDLabel], p.Labels[gangspec.JobSetAttemptLabel] = "uid", attempt
	}
}

// bySet puts such a pod in the gang set.
func bySet(attempt string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Labels[v1alpha1.PodGroupLabel] = "set"
		inAttempt(attempt)(p)
	}
}

// born sets the creation of a pod, from when the stories begin.
func born(after time.Duration) func(*v1.Pod) { return aged(-after) }

func TestStoriesOfAttempts(t *testing.T) {
	tellStories(t, map[string]story{
		"the first Job of the next attempt comes before the pods of the others are deleted": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &gangspec.PodGroupDescription{Min: 4})
				c.add(podsNamed("a", 2, bySet("0"))...)
				c.add(podsNamed("b", 2, bySet("0"))...)
				c.outcome("runs")
				c.remove("a") // the Job that failed
				c.add(podsNamed("c", 2, bySet("1"), born(time.Minute))...)
				c.outcome("half of the next attempt")
				c.footprint("set")
				c.add(podsNamed("o", 2, born(time.Minute), of("o"), needs(2), urgent(1))...)
				c.change("b", dying)
				c.remove("b")
				c.run()
				c.add(podsNamed("d", 2, bySet("1"), born(2*time.Minute))...)
				c.outcome("all came")
				c.remove("o")
				c.outcome("there is room")
			},
			want: []string{
				"runs: a/set 4 bound",
				"half of the next attempt: a/set 2 pending",
				"set: 0 run of min 4, map[] by role, broken for 0s",
				"all came: a/o 2 bound, a/set 4 pending",
				"there is room: a/set 4 bound",
			},
		},
		"a scheduler that begins then sees the next attempt before the last one": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.s.closed = true
				c.describe("set", &gangspec.PodGroupDescription{Min: 4})
				c.add(podsNamed("c", 2, bySet("1"), born(time.Minute))...)
				c.add(podsNamed("b", 2, bySet("0"), bindTo("n", time.Second))...)
				c.do(c.s.Open(c.now))
				c.outcome("begins")
				c.remove("c")
				c.add(podsNamed("d", 2, bySet("1"), born(time.Minute))...)
				c.outcome("its first pods are replaced")
			},
			want: []string{"begins: a/set 2 pending", "its first pods are replaced: a/set 2 pending"},
		},
		"pods of the last attempt that wait, or have held a node, are not placed with the next": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("set", &gangspec.PodGroupDescription{Min: 4, Annotations: values{modeKey: "NonStrict"}})
				c.add(podsNamed("a", 4, bySet("0"))...)
				c.outcome("does not fit")
				c.add(podsNamed("b", 3, bySet("1"), born(time.Minute))...)
				c.outcome("three of the next")
				c.grow("n", 1)
				c.add(podsNamed("c", 1, bySet("1"), born(time.Minute))...)
				c.outcome("all of the next")
			},
			want: []string{
				"does not fit: a/set 1 pending 3 planned",
				"three of the next: a/set 7 pending",
				"all of the next: a/set 4 pending 4 bound",
			},
		},
		"members that succeeded in the last attempt do not count in the next": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &gangspec.PodGroupDescription{Min: 4})
				c.add(podsNamed("a", 2, bySet("0"))...)
				c.bring(podsNamed("b", 2, bySet("0"))...)
				c.now = c.now.Add(time.Second)
				c.finish("a")
				c.now = c.now.Add(time.Hour)
				c.add(podsNamed("c", 2, bySet("1"), born(time.Hour))...)
				c.outcome("half of the next attempt")
				c.why("set")
			},
			want: []string{"half of the next attempt: a/set 2 pending", `GangIncomplete: gang "a/set" has 2 of 4 members`},
		},
		"a label that is edited by mistake, and edited back": {
			room: map[string]int{"n": 3},
			play: func(c *cluster) {
				c.describe("set", &gangspec.PodGroupDescription{Min: 2})
				c.bring(podsNamed("a", 2, bySet("0"))...)
				c.change("a1", labeled(gangspec.JobSetAttemptLabel, "9"))
				c.look("edited")
				c.change("a1", labeled(gangspec.JobSetAttemptLabel, "0"))
				c.add(podOf("b", bySet("0")))
				c.outcome("edited back")
			},
			want: []string{"edited: a/set 1 bound", "edited back: a/set 3 bound"},
		},
		"JobSets that use one PodGroup": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &gangspec.PodGroupDescription{Min: 4})
				c.add(podsNamed("a", 2, bySet("0"))...)
				c.add(podsNamed("b", 2, bySet("3"), labeled(v1alpha1.JobSetUIDLabel, "other"))...)
				c.outcome("both came")
			},
			want: []string{"both came: a/set 4 bound"},
		},
	})
}

func TestStoriesOfLeaders(t *testing.T) {
	const gang = "lws.serve.0"
	runs := func(c *cluster) {
		c.describe(gang, &gangspec.PodGroupDescription{Min: 4})
		c.add(podOf("l", byGroup("0")), podOf("w1", byGroup("1")), podOf("w2", byGroup("2")), podOf("w3", byGroup("3")))
		c.outcome("runs")
	}
	tellStories(t, map[string]story{
		"a leader that is made anew comes before the workers of the last one are deleted": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				runs(c)
				c.change("l", dying) // in the background
				c.remove("l")
				c.add(podOf("m", byGroup("0"), born(time.Minute)))
				c.outcome("the next leader")
				c.add(podsNamed("o", 2, born(time.Minute), of("o"), needs(2), urgent(1))...)
				c.change("w", dying)
				c.remove("w")
				c.run()
				c.add(podOf("x1", byGroup("1"), born(2*time.Minute)), podOf("x2", byGroup("2"), born(2*time.Minute)), podOf("x3", byGroup("3"), born(2*time.Minute)))
				c.outcome("all came")
				c.remove("o")
				c.outcome("there is room")
			},
			want: []string{
				"runs: a/lws.serve.0 4 bound",
				"the next leader: a/lws.serve.0 1 pending",
				"all came: a/lws.serve.0 4 pending, a/o 2 bound",
				"there is room: a/lws.serve.0 4 bound",
			},
		},
		"a worker that is made anew": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				runs(c)
				c.remove("w1")
				c.add(podOf("x1", byGroup("1"), born(time.Minute)))
				c.outcome("it comes back")
			},
			want: []string{"runs: a/lws.serve.0 4 bound", "it comes back: a/lws.serve.0 4 bound"},
		},
		"API servers whose clocks differ": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.describe(gang, &gangspec.PodGroupDescription{Min: 2})
				c.add(podOf("w", byGroup("1")), podOf("l", byGroup("0"), born(2*time.Second)))
				c.outcome("the worker seems to be older")
			},
			want: []string{"the worker seems to be older: a/lws.serve.0 2 bound"},
		},
	})
}

// checkSuperseded checks that a member is superseded if another one of its gang shows it.
func checkSuperseded(g *gang, fail func(string, ...any)) {
	attempt := func(m *member) int { n, _ := strconv.Atoi(m.pod.Labels[gangspec.JobSetAttemptLabel]); return n }
	for uid, m := range g.members {
		if m.replaced != g.incarnation.replaces(gangspec.OriginOf(m.pod)) {
			fail("pod %s is replaced: %t", uid, m.replaced)
		}
		for _, other := range g.members {
			set := m.pod.Labels[v1alpha1.JobSetUIDLabel]
			if set != "" && set == other.pod.Labels[v1alpha1.JobSetUIDLabel] && attempt(m) < attempt(other) && !m.replaced {
				fail("pod %s is not superseded, and pod %s is of the next attempt", uid, other.uid())
			}
		}
	}
	for uid, f := range g.incarnation.finished {
		if g.incarnation.replaces(f.origin) {
			fail("pod %s is replaced, and counts as one that ran to success", uid)
		}
	}
}
