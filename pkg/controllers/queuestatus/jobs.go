package queuestatus

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/usage"
)

// waiting is what the scheduler offers of the pods that wait.
type waiting struct {
	jobs map[string]job // by name
	// of has the names of the jobs of the pods that have to start. The other members of gangs ask for nothing yet.
	of map[types.UID]string
}

// job is what is placed with a pod.
type job struct {
	pod *v1.Pod
	gangstate.PlacementRequest
}

// waiting returns the jobs of the pods that wait, as far as objects show them.
func (c *cluster) waiting(now time.Time) waiting {
	pods, profiles := map[string][]*v1.Pod{}, map[string]*gangstate.Gangs{}
	for _, pod := range c.pods {
		if scheduler := pod.Spec.SchedulerName; c.schedulers[scheduler] && !c.isScheduledAlone(pod) {
			pods[scheduler] = append(pods[scheduler], pod)
		}
	}
	for scheduler := range c.schedulers {
		profiles[scheduler] = gangstate.FromObjects(c.groups, pods[scheduler], now)
	}
	all, offered := waiting{jobs: map[string]job{}, of: map[types.UID]string{}}, map[member]bool{}
	for _, pod := range c.pods {
		as := c.memberOf(pod)
		if offered[as] || !c.waits(pod) {
			continue
		}
		gangs := profiles[pod.Spec.SchedulerName]
		if at, in := gangs.Progress(pod.UID); in && (!at.IsComplete || gangspec.IsUncounted(pod)) {
			continue
		}
		want, _ := gangs.Wants(pod)
		offered[as] = want.Together()
		name := usage.NameOf(pod, want)
		if known, is := all.jobs[name]; !is || pod.UID < known.pod.UID { // of several gangs, always the same
			all.jobs[name] = job{pod, want}
		}
		for _, one := range want.Pods {
			all.of[one.UID] = name
		}
	}
	return all
}

// waits reports whether a pod waits for a node, and asks for it as far as its status shows.
func (c *cluster) waits(pod *v1.Pod) bool {
	return c.counts(pod) && objectstate.AwaitsNode(pod) && !asksForNothing(pod)
}

// asksForNothing reports whether the status of a pod shows that the scheduler does not try its gang. The scheduler may
// know more than objects show.
func asksForNothing(pod *v1.Pod) bool {
	said := objectstate.WaitCondition(pod)
	return said != nil && v1alpha1.AsksForNothing(said.Reason)
}

// offer makes the jobs wait in the book, in which their pods are counted: those that are too large for their queue have
// no share there.
func (w waiting) offer(book *queueing.Book, counter *usage.Counter) {
	for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
		j := w.jobs[name]
		book.Offer(counter.Job(name, j.pod, j.PlacementRequest, j.Pods), queueing.Moment{})
	}
}
