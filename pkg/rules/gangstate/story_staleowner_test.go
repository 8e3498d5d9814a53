package gangstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// byJob puts a pod in the gang of its Job train, by the UID of that.
func byJob(uid types.UID) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Annotations[v1alpha1.GangAnnotation] = v1alpha1.GangOwner
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: uid, Controller: new(true)}}
	}
}

func TestStoriesOfNamesakes(t *testing.T) {
	const gang = "job.train"
	tellStories(t, map[string]story{
		"a Job that is made again with more pods starts whole, or not at all": {
			room: map[string]int{"n": 5},
			play: func(c *cluster) {
				c.describe(gang, &gangspec.PodGroupDescription{Min: 2, Owner: "first"})
				c.add(podsNamed("old", 2, byJob("first"))...)
				c.outcome("the first runs")
				c.add(podsNamed("new", 4, byJob("second"))...)
				c.outcome("the second came")
				c.why(gang)
				c.describe(gang, &gangspec.PodGroupDescription{Min: 4, Owner: "second"})
				c.outcome("the PodGroup is of the second")
				c.why(gang)
				c.remove("old")
				c.outcome("the pods of the first are deleted")
			},
			want: []string{
				"the first runs: a/job.train 2 bound",
				"the second came: a/job.train 4 pending 2 bound",
				`GangUndefined: gang "a/job.train": 4 members are of another owner than its PodGroup, which lockstep-controller brings up to date: see whether that runs`,
				"the PodGroup is of the second: a/job.train 4 pending",
				`Unschedulable: gang "a/job.train": 3 of 4 members fit`,
				"the pods of the first are deleted: a/job.train 4 bound",
			},
		},
		"what succeeded for a Job that is gone does not count for the next": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe(gang, &gangspec.PodGroupDescription{Min: 4, Owner: "first"})
				c.add(podsNamed("done", 2, byJob("first"))...)
				c.bring(podsNamed("old", 2, byJob("first"))...)
				c.finish("done")
				c.now = c.now.Add(time.Minute)
				c.describe(gang, &gangspec.PodGroupDescription{Min: 4, Owner: "second"})
				c.add(podsNamed("new", 2, byJob("second"), born(time.Minute))...)
				c.outcome("two of four came")
				c.why(gang)
			},
			want: []string{
				"two of four came: a/job.train 2 pending",
				`GangIncomplete: gang "a/job.train" has 2 of 4 members`,
			},
		},
		"whoever names the PodGroup is in it, whatever made them": {
			room: map[string]int{"n": 2},
			play: func(c *cluster) {
				c.describe(gang, &gangspec.PodGroupDescription{Min: 2, Owner: "first"})
				c.add(podOf("one", byJob("first")), podOf("two", labeled(v1alpha1.PodGroupLabel, gang)))
				c.outcome("both came")
			},
			want: []string{"both came: a/job.train 2 bound"},
		},
		"without pods the minimum is not known": {
			play: func(c *cluster) {
				c.describe(gang, &gangspec.PodGroupDescription{Owner: "first"})
				c.bring(podsNamed("p", 2, byJob("first"))...)
				c.why(gang)
				c.describe(gang, &gangspec.PodGroupDescription{Min: 3, Owner: "first"})
				c.run()
				c.why(gang)
			},
			want: []string{
				`GangUndefined: gang "a/job.train" has no minimum: lockstep-controller writes it when the owner has pods and is not suspended; if it has, see whether lockstep-controller runs`,
				`GangIncomplete: gang "a/job.train" has 2 of 3 members`,
			},
		},
	})
}

// TestStoriesOfCollectedPods: lockstep-controller lowers the minimum of a Job by the pods that succeeded and are gone.
func TestStoriesOfCollectedPods(t *testing.T) {
	const gang = "job.train"
	job := byJob("first")
	begins := func(c *cluster) {
		c.describe(gang, &gangspec.PodGroupDescription{Min: 4, Owner: "first"})
		c.add(podsNamed("a", 2, job)...)
		c.bring(podsNamed("b", 2, job)...)
		c.finish("a")
	}
	collect := func(c *cluster) {
		for _, name := range []string{"a1", "a2"} {
			c.do(c.s.ForgetSucceeded(podOf(name, job), c.now))
		}
	}
	tellStories(t, map[string]story{
		"two of four succeeded, and their pods are collected with their nodes": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				begins(c)
				c.footprint(gang)
				collect(c)
				c.pass(time.Hour)
				c.grows(gang)
				c.describe(gang, &gangspec.PodGroupDescription{Min: 2, Owner: "first"})
				c.footprint(gang)
				c.grow("n", -3)
				c.remove("b")
				c.add(podsNamed("c", 2, job)...)
				c.outcome("made anew, room for one")
			},
			want: []string{
				"job.train: 2 run of min 2, map[] by role, broken for 0s",
				"it grows: true",
				"job.train: 2 run of min 2, map[] by role, broken for 0s",
				"made anew, room for one: a/job.train 2 pending",
			},
		},
		"the minimum is lowered before the scheduler sees that they are gone": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				begins(c)
				c.describe(gang, &gangspec.PodGroupDescription{Min: 2, Owner: "first"})
				collect(c)
				c.footprint(gang)
			},
			want: []string{"job.train: 2 run of min 2, map[] by role, broken for 0s"},
		},
		"a member is lost when the minimum was lowered, and before the scheduler sees why": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				begins(c)
				c.describe(gang, &gangspec.PodGroupDescription{Min: 2, Owner: "first"})
				c.remove("b1")
				collect(c)
				c.grows(gang)
				c.footprint(gang)
			},
			want: []string{"it grows: false", "job.train: 1 run of min 2, map[] by role, broken for 0s"},
		},
		"a member is lost before the minimum is lowered": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				begins(c)
				collect(c)
				c.grow("n", -4)
				c.remove("b1")
				c.grows(gang)
				c.describe(gang, &gangspec.PodGroupDescription{Min: 2, Owner: "first"})
				c.footprint(gang)
			},
			want: []string{"it grows: false", "job.train: 1 run of min 2, map[] by role, broken for 0s"},
		},
		"the PodGroup is made for the Job when they are gone": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe(gang, &gangspec.PodGroupDescription{Min: 4})
				c.add(podsNamed("a", 2, job)...)
				c.bring(podsNamed("b", 2, job)...)
				c.finish("a")
				c.kept(gang)
				collect(c)
				c.footprint(gang)
				c.kept(gang)
				c.describe(gang, &gangspec.PodGroupDescription{Min: 2, Owner: "first"})
				c.footprint(gang)
				c.kept(gang)
			},
			want: []string{
				"kept: 0",
				"job.train: 2 run of min 2, map[] by role, broken for 0s",
				"kept: 2",
				"job.train: 2 run of min 2, map[] by role, broken for 0s",
				"kept: 0",
			},
		},
	})
}
