package gangstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestStoriesOfPodsThatJobsCountAsFailed: by default (podReplacementPolicy TerminatingOrFailed) the Job controller
// counts a pod as failed as soon as it is being deleted, takes its finalizer away, and makes another; that its
// containers end with exit code 0 later changes nothing (pkg/controller/job: isPodFailed, uncounted.failed). So does a
// Job that is deleted.
func TestStoriesOfPodsThatJobsCountAsFailed(t *testing.T) {
	ofJob := func(owner types.UID) func(*v1.Pod) { return ofOwner("set", "batch/v1", "Job", owner) }
	const train = "job.train"
	tellStories(t, map[string]story{
		"label: one is evicted, and there is no room for the one made anew": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &gangspec.PodGroupDescription{Min: 4})
				c.bring(podsNamed("p", 4, ofJob("job"))...)
				c.now = c.now.Add(time.Minute)
				c.change("p1", dying)
				c.add(podOf("q1", ofJob("job"), born(time.Minute)))
				c.grow("n", -1)
				c.obey("p1")
				c.run()
				c.pass(time.Hour)
				c.footprint("set")
				c.kept("set")
			},
			want: []string{"set: 3 run of min 4, map[] by role, broken for 1h0m0s", "kept: 0"},
		},
		"owner: one is evicted, and there is no room for the one made anew": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe(train, &gangspec.PodGroupDescription{Min: 4, Owner: "job"})
				c.bring(podsNamed("p", 4, byJob("job"))...)
				c.now = c.now.Add(time.Minute)
				c.change("p1", dying)
				c.add(podOf("q1", byJob("job"), born(time.Minute)))
				c.grow("n", -1)
				c.obey("p1")
				c.run()
				c.pass(time.Hour)
				c.footprint(train)
				c.grows(train)
			},
			want: []string{"job.train: 3 run of min 4, map[] by role, broken for 1h0m0s", "it grows: false"},
		},
		"owner: that again, and the PodGroup is made when the old pods are gone": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe(train, &gangspec.PodGroupDescription{Min: 4, Owner: "first"})
				c.bring(podsNamed("p", 4, byJob("first"))...)
				c.now = c.now.Add(time.Minute)
				c.change("p", dying)
				c.describe(train, nil) // deleted with the Job
				c.add(podsNamed("q", 4, byJob("again"), born(time.Minute))...)
				c.grow("n", -2)
				c.now = c.now.Add(2 * time.Second)
				c.obey("p")
				c.describe(train, &gangspec.PodGroupDescription{Min: 4, Owner: "again"})
				c.outcome("two of four")
				c.kept(train)
			},
			want: []string{"two of four: a/job.train 4 pending", "kept: 0"},
		},
		"owner: the old PodGroup goes later, what had succeeded stays counted": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe(train, &gangspec.PodGroupDescription{Min: 4, Owner: "first"})
				c.bring(podsNamed("p", 4, byJob("first"))...)
				c.now = c.now.Add(time.Minute)
				c.describe(train, nil) // deleted with the Job
				c.add(podsNamed("q", 4, byJob("again"), born(time.Minute))...)
				c.grow("n", -2)
				c.now = c.now.Add(2 * time.Second)
				c.finish("p") // by themselves
				for _, p := range podsNamed("p", 4, byJob("first")) {
					c.do(c.s.ForgetSucceeded(p, c.now))
				}
				c.describe(train, &gangspec.PodGroupDescription{Min: 4, Owner: "again"})
				c.outcome("two of four")
				c.kept(train)
			},
			want: []string{"two of four: a/job.train 4 pending", "kept: 0"},
		},
	})
}
