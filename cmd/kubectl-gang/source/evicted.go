package source

import (
	"cmp"
	"context"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// WithEvicted adds to the gangs of a namespace, of all if it is empty, those of which nothing is left since they were
// evicted: a gang by annotations has no PodGroup. Such a gang is known by the event on its Job, as long as there is
// one, and by the template that the Job makes its pods from. What the user may not read is left out.
func (c *Cluster) WithEvicted(ctx context.Context, namespace string, gangs []view.Gang) []view.Gang {
	path := "/api/v1/events?fieldSelector=reason%3D" + v1alpha1.ReasonEvicted
	if namespace != "" {
		path = "/api/v1/namespaces/" + namespace + "/events?fieldSelector=reason%3D" + v1alpha1.ReasonEvicted
	}
	var events v1.EventList
	if err := c.Read(ctx, path, &events); err != nil {
		return gangs
	}
	known := map[string]bool{}
	for _, g := range gangs {
		known[g.Namespace+"/"+g.Name] = true
	}
	slices.SortFunc(events.Items, func(a, b v1.Event) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) }) // the last counts
	looked := map[string]bool{}
	for i := range events.Items {
		event := &events.Items[i]
		of := event.InvolvedObject
		key := of.Namespace + "/" + of.Name
		if of.Kind != "Job" || looked[key] || known[gangIn(event.Message)] {
			continue
		}
		looked[key] = true
		job := &batchv1.Job{}
		if err := c.Read(ctx, "/apis/batch/v1/namespaces/"+of.Namespace+"/jobs/"+of.Name, job); err != nil {
			continue
		}
		if job.UID != of.UID || objectstate.JobIsOver(job) {
			continue
		}
		for _, g := range view.Gangs(view.GangsIn{Pods: []*v1.Pod{PodOf(job)}}) {
			if name := g.Namespace + "/" + g.Name; !known[name] {
				known[name] = true
				g.Phase, g.Reason, g.Message, g.Members = "Pending", v1alpha1.ReasonEvicted, event.Message, 0
				g.Created = job.CreationTimestamp
				gangs = append(gangs, g)
			}
		}
	}
	slices.SortFunc(gangs, func(a, b view.Gang) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), view.CompareNames(a.Name, b.Name))
	})
	return gangs
}

// gangIn returns the gang that the message of such an event begins with; empty for none. It only saves reading Jobs.
func gangIn(message string) string {
	_, after, _ := strings.Cut(message, `"`)
	name, _, _ := strings.Cut(after, `"`)
	return name
}

// PodOf returns a pod as a Job makes it.
func PodOf(job *batchv1.Job) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: job.Spec.Template.Spec}
	pod.Namespace = job.Namespace
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job,
		batchv1.SchemeGroupVersion.WithKind("Job"))}
	return pod
}
