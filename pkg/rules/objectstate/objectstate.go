// Package objectstate has what all parts must read alike from objects of Kubernetes: whether a pod has ended, waits or
// has a node, whether a node takes pods, whether a Job makes more pods, and who wrote a field.
//
// It reads single objects as they are: what a gang or a queue is follows elsewhere.
package objectstate

import (
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// HasEnded reports whether a pod has succeeded or failed: it takes no capacity, and never runs again.
func HasEnded(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

// AwaitsNode reports whether a pod has no node and may get one: it has not ended, and is not being deleted.
func AwaitsNode(pod *v1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && !HasEnded(pod)
}

// OccupiesNode reports whether a pod takes capacity of a node: it has one and has not ended, but may be being deleted.
func OccupiesNode(pod *v1.Pod) bool { return pod.Spec.NodeName != "" && !HasEnded(pod) }

// StaysOnNode reports whether a pod has a node, has not ended and is not being deleted.
func StaysOnNode(pod *v1.Pod) bool { return OccupiesNode(pod) && pod.DeletionTimestamp == nil }

// AsksForTheSame reports whether two versions of a pod ask the scheduler for the same: by their spec, labels and
// annotations.
func AsksForTheSame(a, b *v1.Pod) bool {
	return a.Generation == b.Generation && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations)
}

// WaitCondition returns the condition of a pod that says why it waits; nil for none.
func WaitCondition(pod *v1.Pod) *v1.PodCondition {
	if c := PodCondition(pod, v1.PodScheduled); c != nil && c.Status == v1.ConditionFalse {
		return c
	}
	return nil
}

// IsBeingEvicted reports whether the scheduler has begun to evict a pod: it is about to delete it, or has.
func IsBeingEvicted(pod *v1.Pod) bool {
	c := PodCondition(pod, v1alpha1.PodEvicting)
	return c != nil && c.Status == v1.ConditionTrue
}

// EvictedBy returns the profile that has begun to evict a pod; "" for none.
func EvictedBy(pod *v1.Pod) string {
	if IsBeingEvicted(pod) {
		return PodCondition(pod, v1alpha1.PodEvicting).Reason
	}
	return ""
}

// PodCondition returns a condition of a pod; nil for none.
func PodCondition(pod *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// IsReady reports whether nothing says that a node is cut off or dead: neither its condition, nor the taints that
// Kubernetes adds because of it, and removes a moment after the node is back.
func IsReady(node *v1.Node) bool {
	return !slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status != v1.ConditionTrue
	}) && !slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeNotReady || t.Key == v1.TaintNodeUnreachable
	})
}

// TakesPods reports whether a node is ready and not cordoned.
func TakesPods(node *v1.Node) bool { return IsReady(node) && !node.Spec.Unschedulable }

// ControllingJob returns the Job that controls an object; nil for none. Other APIs have kinds of that name, too.
func ControllingJob(object metav1.Object) *metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == "Job" &&
		strings.HasPrefix(owner.APIVersion, batchv1.GroupName+"/") {
		return owner
	}
	return nil
}

// JobCondition returns the first true condition of a Job of these types; nil for none.
func JobCondition(job *batchv1.Job, kinds ...batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Status == v1.ConditionTrue && slices.Contains(kinds, c.Type) {
			return c
		}
	}
	return nil
}

// JobIsOver reports whether a Job makes no more pods: it has completed or failed, or its pods are still being removed
// before that is written.
func JobIsOver(job *batchv1.Job) bool {
	return JobCondition(job, batchv1.JobComplete, batchv1.JobFailed, batchv1.JobSuccessCriteriaMet,
		batchv1.JobFailureTarget) != nil
}

// JobIsMadeAgain reports whether the controller of a Job, such as that of a JobSet, may make it again once it failed. A
// CronJob makes others.
func JobIsMadeAgain(job *batchv1.Job) bool {
	owner := metav1.GetControllerOfNoCopy(job)
	return owner != nil && owner.Kind != "CronJob"
}

// defaultBackoffLimit is that of Jobs that state none.
const defaultBackoffLimit = 6

// JobFailsBy reports whether a Job is sure to fail if so many of its running pods are deleted: each counts as failed.
// It is not sure where a podFailurePolicy, limits by index or another controller decide, or pods that are being deleted
// may still succeed.
func JobFailsBy(job *batchv1.Job, deleted int) bool {
	spec, status := &job.Spec, &job.Status
	if spec.PodFailurePolicy != nil || spec.BackoffLimitPerIndex != nil ||
		ptr.Deref(spec.PodReplacementPolicy, batchv1.TerminatingOrFailed) != batchv1.TerminatingOrFailed ||
		ptr.Deref(spec.ManagedBy, batchv1.JobControllerName) != batchv1.JobControllerName {
		return false
	}
	failed := int(status.Failed) + deleted
	if uncounted := status.UncountedTerminatedPods; uncounted != nil {
		failed += len(uncounted.Failed)
	}
	return failed > int(ptr.Deref(spec.BackoffLimit, defaultBackoffLimit))
}

// Writers lists the field managers that wrote a field as it stands; none where that is not known.
func Writers(managers []metav1.ManagedFieldsEntry, path fieldpath.Path) (writers []string) {
	for i := range managers {
		entry := &managers[i]
		if entry.FieldsV1 == nil {
			continue
		}
		fields := fieldpath.NewSet()
		if err := fields.FromJSON(entry.FieldsV1.GetRawReader()); err == nil && fields.Has(path) {
			writers = append(writers, entry.Manager)
		}
	}
	return writers
}
