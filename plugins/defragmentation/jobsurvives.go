package defragmentation

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// makers are the controllers that replace a pod which was evicted. For a Job, survives checks besides whether it goes
// on.
var makers = []string{"ReplicaSet.apps", "StatefulSet.apps", "ReplicationController", "Job.batch"}

// madeAgain reports whether the controller of a pod is one that replaces it when it is evicted. What other controllers
// do is not known here: a workflow, say, may take the eviction for a failure of all that has run so far.
func (r *round) madeAgain(ref *metav1.OwnerReference) bool {
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind().String()
	return slices.Contains(makers, kind) || slices.Contains(r.args.ControllerKinds, kind)
}

// survives reports whether the controller of a pod goes on when the pod is evicted. A Job takes the eviction for a
// failure, and ends after backoffLimit of them, unless its podFailurePolicy ignores disruptions.
func (r *round) survives(ctx context.Context, pod *v1.Pod) (bool, error) {
	ref := objectstate.ControllingJob(pod)
	if ref == nil {
		return true, nil
	}
	job := &batchv1.Job{}
	switch err := r.scheduler.Client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: ref.Name}, job); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading Job %s/%s: %w", pod.Namespace, ref.Name, err)
	}
	return job.UID == ref.UID && ignoresDisruption(job), nil
}

// ignoresDisruption reports whether the first rule of a Job that may apply to disrupted pods ignores their failure.
// A rule on exit codes may apply: it is not known with which code a container ends that is told to end.
func ignoresDisruption(job *batchv1.Job) bool {
	if job.Spec.PodFailurePolicy == nil {
		return false
	}
	for _, rule := range job.Spec.PodFailurePolicy.Rules {
		if rule.OnExitCodes != nil && rule.Action != batchv1.PodFailurePolicyActionIgnore {
			return false
		}
		for _, c := range rule.OnPodConditions {
			if c.Type == v1.DisruptionTarget && (c.Status == "" || c.Status == v1.ConditionTrue) {
				return rule.Action == batchv1.PodFailurePolicyActionIgnore
			}
		}
	}
	return false
}
