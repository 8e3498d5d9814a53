package source

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
)

// WithEvicted adds to the gangs of a namespace, of all if it is empty, those of which nothing is left since they were
// evicted: a gang by annotations has no PodGroup. Such a gang is known by the event on its Job, as long as there is
// one and the Job has not completed, and by the template that the Job makes its pods from. What the user may not read
// is left out.
func (c *Cluster) WithEvicted(ctx context.Context, namespace string, gangs []view.Gang) []view.Gang {
	known := map[string]bool{}
	for _, g := range gangs {
		known[g.Key().String()] = true
	}
	looked := map[string]bool{}
	for _, event := range c.evictions(ctx, namespace) { // the last counts
		of := event.InvolvedObject
		key := of.Namespace + "/" + of.Name
		if of.Kind != "Job" || looked[key] || known[recordOf(event).Gang] {
			continue
		}
		looked[key] = true
		job := &batchv1.Job{}
		if err := c.Read(ctx, "/apis/batch/v1/namespaces/"+of.Namespace+"/jobs/"+of.Name, job); err != nil {
			continue
		}
		failed := gangstate.TextJobFailed(job)
		if job.UID != of.UID || failed == "" && objectstate.JobIsOver(job) {
			continue
		}
		for _, g := range view.Gangs(view.GangsIn{Pods: []*v1.Pod{PodOf(job)}}) {
			if name := g.Key().String(); !known[name] {
				known[name] = true
				g.Phase, g.Reason, g.Message, g.Members = "Pending", v1alpha1.ReasonEvicted, event.Message, 0
				if failed != "" && !objectstate.JobIsMadeAgain(job) {
					g.Phase, g.Reason, g.Message = "Failed", v1alpha1.ReasonJobFailed, failed+"; "+event.Message
				}
				g.Created = job.CreationTimestamp
				gangs = append(gangs, g)
			}
		}
	}
	slices.SortFunc(gangs, func(a, b view.Gang) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), gangspec.CompareNatural(a.Name, b.Name))
	})
	return gangs
}

// LastEviction returns when a gang was last evicted as a whole, and for whom, as the events record that are left; zero
// if they do not.
func (c *Cluster) LastEviction(ctx context.Context, gang string) (at time.Time, preemptor string) {
	namespace, _, _ := strings.Cut(gang, "/")
	for _, event := range c.evictions(ctx, namespace) {
		if record := recordOf(event); record.Gang == gang {
			return seen(event), record.For
		}
	}
	return time.Time{}, ""
}

// evictions lists the events of gangs of a namespace, of all if it is empty, that were evicted as a whole, the last one
// first; none if the user may not read them.
func (c *Cluster) evictions(ctx context.Context, namespace string) []*v1.Event {
	path := "/api/v1/events?fieldSelector=reason%3D" + v1alpha1.ReasonEvicted
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/events?fieldSelector=reason%3D" + v1alpha1.ReasonEvicted
	}
	var list v1.EventList
	if c.Read(ctx, path, &list) != nil {
		return nil
	}
	events := apiobjects.Pointers(list.Items)
	slices.SortFunc(events, func(a, b *v1.Event) int { return seen(b).Compare(seen(a)) })
	return events
}

// seen returns when an event was last seen.
func seen(event *v1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	default:
		return event.CreationTimestamp.Time
	}
}

// recordOf returns the record of the eviction that such an event tells of; empty where it has none.
func recordOf(event *v1.Event) evictionrecord.Record {
	return evictionrecord.Read(event.Annotations[v1alpha1.EvictedAnnotation])
}

// PodOf returns a pod as a Job makes it.
func PodOf(job *batchv1.Job) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: job.Spec.Template.Spec}
	pod.Namespace = job.Namespace
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job,
		batchv1.SchemeGroupVersion.WithKind("Job"))}
	return pod
}
