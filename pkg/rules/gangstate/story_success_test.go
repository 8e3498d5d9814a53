package gangstate

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// obey deletes pods whose processes end with exit code 0 then: kubelet writes phase Succeeded, and the objects go.
func (c *cluster) obey(prefix string) {
	ids := c.named(prefix)
	c.change(prefix, dying)
	c.finish(prefix)
	for _, id := range ids {
		c.do(c.s.ForgetSucceeded(podOf(string(id)), c.now))
	}
}

// tracked makes a pod one that its Job has not counted yet.
func tracked(p *v1.Pod) { p.Finalizers = []string{batchv1.JobTrackingFinalizer} }

// ofOwner puts a pod in the gang of this name, and makes a controller its owner.
func ofOwner(gang, apiVersion, kind string, owner types.UID) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Labels[v1alpha1.PodGroupLabel] = gang
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: string(owner), UID: owner, Controller: new(true)}}
	}
}

// TestStoriesOfDeletedPods: what ends because it is deleted has not run to success, unless its controller takes it for
// that.
func TestStoriesOfDeletedPods(t *testing.T) {
	ofSet := ofOwner("set", "apps/v1", "StatefulSet", "set")
	ofJob := func(owner types.UID) func(*v1.Pod) { return ofOwner("set", "batch/v1", "Job", owner) }
	ofAttempt := func(attempt string, owner types.UID) func(*v1.Pod) {
		return func(p *v1.Pod) { ofJob(owner)(p); inAttempt(attempt)(p) }
	}
	tellStories(t, map[string]story{
		"JobSet: those of the last attempt end when the next has begun": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &Object{Min: 4})
				c.add(podsNamed("a", 2, ofAttempt("0", "a"))...)
				c.add(podsNamed("b", 2, ofAttempt("0", "b"))...)
				c.run()
				c.remove("a")
				c.now = c.now.Add(time.Minute)
				c.add(podsNamed("c", 2, ofAttempt("1", "c"), born(time.Minute))...)
				c.run()
				c.now = c.now.Add(5 * time.Second)
				c.obey("b")
				c.run()
				c.look("half of the next attempt")
			},
			want: []string{"half of the next attempt: a/set 2 pending"},
		},
		"JobSet: that the next attempt has begun is seen later": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &Object{Min: 4})
				c.add(podsNamed("b", 4, ofAttempt("0", "b"))...)
				c.run()
				c.now = c.now.Add(time.Minute)
				c.change("b", dying)
				c.finish("b")
				c.add(podsNamed("c", 2, ofAttempt("1", "c"), born(30*time.Second))...)
				c.run()
				c.look("half of the next attempt")
			},
			want: []string{"half of the next attempt: a/set 2 pending"},
		},
		"LeaderWorkerSet: the workers of the last leader end when the next is there": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				leader := func(p *v1.Pod) { ofOwner("", "apps/v1", "StatefulSet", "leaders")(p); byGroup("0")(p) }
				worker := func(p *v1.Pod) { ofOwner("", "apps/v1", "StatefulSet", "workers")(p); byGroup("1")(p) }
				c.describe("lws.serve.0", &Object{Min: 4})
				c.add(append(podsNamed("w", 3, worker), podOf("l", leader))...)
				c.run()
				c.change("l", dying)
				c.remove("l")
				c.now = c.now.Add(time.Minute)
				c.add(podOf("m", leader, born(time.Minute)))
				c.run()
				c.now = c.now.Add(5 * time.Second)
				c.obey("w")
				c.run()
				c.look("the next leader, alone")
			},
			want: []string{"the next leader, alone: a/lws.serve.0 1 pending"},
		},
		"StatefulSet: its pods are evicted one by one": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &Object{Min: 4})
				c.add(podsNamed("p", 4, ofSet)...)
				c.run()
				c.grow("n", -2)
				c.obey("p1")
				c.add(podOf("q1", ofSet, born(time.Minute)))
				c.obey("p")
				c.add(podOf("q2", ofSet, born(time.Minute)))
				c.run()
				c.look("two of four")
			},
			want: []string{"two of four: a/set 2 pending"},
		},
		"Job: it makes no other pod": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &Object{Min: 4})
				c.add(podsNamed("p", 4, ofJob("job"), tracked)...)
				c.run()
				c.obey("p1")
				c.footprint("set")
			},
			want: []string{"set: 3 run of min 3, map[] by role, broken for 0s"},
		},
		"one that ran to success is deleted later, and its object stays for a while": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &Object{Min: 4})
				c.add(podsNamed("p", 4, ofSet)...)
				c.run()
				done := edit(c.pods["p1"], ended(0))
				c.finish("p1")
				c.do(c.s.Succeeded(edit(done, dying), c.now))
				c.footprint("set")
				c.do(c.s.ForgetSucceeded(done, c.now))
				c.footprint("set")
			},
			want: []string{
				"set: 3 run of min 3, map[] by role, broken for 0s",
				"set: 3 run of min 3, map[] by role, broken for 0s",
			},
		},
		"a Job that has the name of another: what succeeded of that does not count": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				const gang = "job.train"
				c.describe(gang, &Object{Min: 4, Owner: "first"})
				c.add(podsNamed("a", 4, byJob("first"))...)
				c.run()
				c.now = c.now.Add(time.Minute)
				c.finish("a1")
				c.change("a", dying)
				c.describe(gang, &Object{Min: 4, Owner: "again"})
				c.add(podsNamed("b", 3, byJob("again"), born(0))...)
				c.obey("a")
				c.run()
				c.look("three of four")
			},
			want: []string{"three of four: a/job.train 3 pending"},
		},
	})
}
