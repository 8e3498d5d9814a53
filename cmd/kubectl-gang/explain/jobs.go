package explain

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/jobsuspension"
)

// lackingJobs says why the Jobs that control PodGroups or pods of a gang make fewer pods than it needs. A Job that
// cannot be read is left out.
func lackingJobs(ctx context.Context, read reader, g *view.Gang, groups []*coscheduling.PodGroup,
	pods []*v1.Pod) (advice []string) {
	names := map[string]bool{}
	add := func(object metav1.Object) {
		if owner := objectstate.ControllingJob(object); owner != nil {
			names[owner.Name] = true
		}
	}
	for _, group := range groups {
		add(group)
	}
	for _, pod := range pods {
		add(pod)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var job batchv1.Job
		if read(ctx, "/apis/batch/v1/namespaces/"+g.Namespace+"/jobs/"+name, &job) != nil {
			continue
		}
		if c := objectstate.JobCondition(&job, batchv1.JobFailed); c != nil {
			advice = append(advice, fmt.Sprintf("Job %q has failed since (%s), and makes no more pods: make it again",
				job.Name, c.Reason))
			continue
		}
		if g.Reason == v1alpha1.ReasonEvicted {
			continue
		}
		switch makes, _ := ownedpodgroup.PodsAtOnce(&job.Spec); {
		case jobsuspension.IsSuspended(&job):
			advice = append(advice, suspended(&job))
		case len(names) == 1 && makes < g.Minimum:
			advice = append(advice, fmt.Sprintf("Job %q makes %d pods at a time, by its parallelism and completions, and the "+
				"gang needs %d", job.Name, makes, g.Minimum))
		default:
			if text := refusedPods(ctx, read, &job); text != "" {
				advice = append(advice, fmt.Sprintf("Job %q could not make a pod: %s", job.Name, text))
			}
		}
	}
	return advice
}

// suspended says that a suspended Job makes no pods.
func suspended(job *batchv1.Job) string {
	return fmt.Sprintf("Job %q is suspended, and makes no pods until its spec.suspend is false", job.Name)
}

// refusedPods returns what the last event says of why a Job could not make a pod; empty where there is none, or it
// cannot be read.
func refusedPods(ctx context.Context, read reader, job *batchv1.Job) string {
	var list v1.EventList
	path := "/api/v1/namespaces/" + job.Namespace + "/events?" + url.Values{"fieldSelector": {
		"involvedObject.uid=" + string(job.UID) + ",reason=FailedCreate"}}.Encode()
	if read(ctx, path, &list) != nil || len(list.Items) == 0 {
		return ""
	}
	last := slices.MaxFunc(list.Items, func(a, b v1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return last.Message
}
