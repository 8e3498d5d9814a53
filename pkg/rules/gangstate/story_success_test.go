package gangstate

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
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

// TestRanToSuccess: what ends because it is deleted has not run to success, whatever phase it has, unless it is of a
// Job that has not counted it yet.
func TestRanToSuccess(t *testing.T) {
	job, set := ofOwner("x", "batch/v1", "Job", "job"), ofOwner("x", "apps/v1", "StatefulSet", "set")
	for sentence, c := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"it runs":                         {podOf("p"), false},
		"it succeeded":                    {podOf("p", ended(0)), true},
		"it is deleted":                   {podOf("p", ended(0), dying), false},
		"by a StatefulSet":                {podOf("p", set, ended(0), dying), false},
		"and something else has to go":    {podOf("p", set, tracked, ended(0), dying), false},
		"by a Job that has counted it":    {podOf("p", job, ended(0), dying), false},
		"by a Job that has not":           {podOf("p", job, tracked, ended(0), dying), true},
		"by a Job of a JobSet that has":   {podOf("p", job, inAttempt("0"), ended(0), dying), false},
		"with the group of its leader":    {podOf("p", set, byGroup("1"), ended(0), dying), false},
		"it is of a Job, and was deleted": {podOf("p", job, ended(0)), true},
	} {
		if got := gangspec.RanToSuccess(c.pod); got != c.want {
			t.Errorf("%s: it ran to success: %t, want %t", sentence, got, c.want)
		}
	}
}

// TestStoriesOfDeletedPods: what ends because it is deleted has not run to success, unless its controller takes it for
// that.
func TestStoriesOfDeletedPods(t *testing.T) {
	ofSet := ofOwner("set", "apps/v1", "StatefulSet", "set")
	ofJob := func(owner types.UID) func(*v1.Pod) { return ofOwner("set", "batch/v1", "Job", owner) }
	tellStories(t, map[string]story{
		"StatefulSet: its pods are evicted one by one": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &gangspec.PodGroupDescription{Min: 4})
				c.bring(podsNamed("p", 4, ofSet)...)
				c.grow("n", -2)
				c.obey("p1")
				c.add(podOf("q1", ofSet, born(time.Minute)))
				c.obey("p")
				c.add(podOf("q2", ofSet, born(time.Minute)))
				c.outcome("two of four")
			},
			want: []string{"two of four: a/set 2 pending"},
		},
		"Job: it makes no other pod": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &gangspec.PodGroupDescription{Min: 4})
				c.bring(podsNamed("p", 4, ofJob("job"), tracked)...)
				c.obey("p1")
				c.footprint("set")
			},
			want: []string{"set: 3 run of min 3, map[] by role, broken for 0s"},
		},
		"one that ran to success is deleted later, and its object stays for a while": {
			room: map[string]int{"n": 4},
			play: func(c *cluster) {
				c.describe("set", &gangspec.PodGroupDescription{Min: 4})
				c.bring(podsNamed("p", 4, ofSet)...)
				done := edit(c.pods["p1"], ended(0))
				c.finish("p1")
				c.do(c.s.ObservePod(edit(done, dying), c.now))
				c.footprint("set")
				c.do(c.s.ForgetSucceeded(done, c.now))
				c.footprint("set")
			},
			want: []string{
				"set: 3 run of min 3, map[] by role, broken for 0s",
				"set: 3 run of min 3, map[] by role, broken for 0s",
			},
		},
	})
}
