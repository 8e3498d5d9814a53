// Package cachetransform says what the cache of lockstep-controller keeps of objects: what its controllers and its page
// read. A controller that comes to read more of an object adds that here.
//
// Its functions are transforms for caches. They return other objects as they are, and of what they have returned the
// same again.
package cachetransform

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/jobsuspension"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Pod keeps what queues and Reservations need to know of any pod, and what the status of a gang follows from. The
// requests of all containers become one container without a name, which no pod of the API server has.
func Pod(object any) (any, error) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		return object, nil
	}
	kept := &v1.Pod{ObjectMeta: named(&pod.ObjectMeta), Spec: Places(pod), Status: v1.PodStatus{
		Phase: pod.Status.Phase, NominatedNodeName: pod.Status.NominatedNodeName,
		ResourceClaimStatuses: pod.Status.ResourceClaimStatuses,
	}}
	kept.CreationTimestamp, kept.DeletionTimestamp = pod.CreationTimestamp, pod.DeletionTimestamp
	kept.Spec.SchedulerName, kept.Spec.NodeName = pod.Spec.SchedulerName, pod.Spec.NodeName
	kept.Spec.SchedulingGates, kept.Spec.SchedulingGroup = pod.Spec.SchedulingGates, pod.Spec.SchedulingGroup
	kept.Spec.ResourceClaims = pod.Spec.ResourceClaims
	if _, _, member := gangspec.KeyOf(pod); member {
		addMember(kept, pod)
	} else {
		addSingle(kept, pod)
	}
	if !objectstate.HasEnded(pod) {
		kept.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: resource.Requests(pod)}}}
	}
	return kept, nil
}

// addMember adds what the status of a gang follows from.
func addMember(kept, pod *v1.Pod) {
	kept.Labels, kept.Annotations = pod.Labels, pod.Annotations
	delete(kept.Annotations, v1.LastAppliedConfigAnnotation)
	kept.OwnerReferences, kept.Finalizers = pod.OwnerReferences, pod.Finalizers
	kept.Spec.Priority = pod.Spec.Priority
	if resource.CheckPod(pod) != nil {
		kept.Spec.Containers, kept.Spec.InitContainers = pod.Spec.Containers, pod.Spec.InitContainers
		kept.Spec.Resources = pod.Spec.Resources
	}
	if gangstate.KubeletRefusal(pod) != "" {
		kept.Status.Reason, kept.Status.Message = pod.Status.Reason, pod.Status.Message
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled || c.Type == v1.DisruptionTarget {
			kept.Status.Conditions = append(kept.Status.Conditions, c)
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil {
			state := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: t.FinishedAt}}
			kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses, v1.ContainerStatus{State: state})
		}
	}
}

// addSingle adds what is read of a pod in no gang: its queue, the Reservation that it uses, and why it waits.
func addSingle(kept, pod *v1.Pod) {
	annotations := []string{v1alpha1.ReservationAllocatedAnnotation}
	if gangspec.AsksUnknownGang(pod) {
		annotations = append(annotations, v1alpha1.GangAnnotation)
	}
	kept.Labels, kept.Annotations = only(pod.Labels, v1alpha1.QueueLabel), only(pod.Annotations, annotations...)
	if c := objectstate.WaitCondition(pod); c != nil {
		kept.Status.Conditions = []v1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
	}
}

// Places returns what a pod asks of nodes.
func Places(pod *v1.Pod) v1.PodSpec {
	asked := v1.PodSpec{NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		asked.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: required}}
	}
	return asked
}

// ScaleDownAnnotations are the annotations of nodes with which cluster-autoscaler and Karpenter leave a node alone.
var ScaleDownAnnotations = []string{"cluster-autoscaler.kubernetes.io/scale-down-disabled",
	"karpenter.sh/do-not-disrupt"}

// Node keeps what a node has to give, and to which pods, and whether it may be scaled down.
func Node(object any) (any, error) {
	node, ok := object.(*v1.Node)
	if !ok {
		return object, nil
	}
	kept := &v1.Node{
		ObjectMeta: named(&node.ObjectMeta), Spec: v1.NodeSpec{Unschedulable: node.Spec.Unschedulable,
			Taints: node.Spec.Taints},
		Status: v1.NodeStatus{Allocatable: node.Status.Allocatable},
	}
	kept.Labels = node.Labels
	kept.Annotations = only(node.Annotations, append(slices.Clone(ScaleDownAnnotations),
		v1alpha1.ReservationMarksAnnotation)...)
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady {
			kept.Status.Conditions = []v1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return kept, nil
}

// Namespace keeps the queue that a namespace names.
func Namespace(object any) (any, error) {
	namespace, ok := object.(*v1.Namespace)
	if !ok {
		return object, nil
	}
	kept := &v1.Namespace{ObjectMeta: named(&namespace.ObjectMeta)}
	kept.Annotations = only(namespace.Annotations, v1alpha1.QueueLabel)
	return kept, nil
}

// Job keeps what a gang needs to know of its Job; and of one whose pods were evicted, how far they have ended.
func Job(object any) (any, error) {
	job, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	template := metav1.ObjectMeta{Annotations: keys.Under(job.Spec.Template.Annotations),
		Labels: keys.Under(job.Spec.Template.Labels)}
	kept := &batchv1.Job{
		ObjectMeta: named(&job.ObjectMeta),
		Spec: batchv1.JobSpec{Parallelism: job.Spec.Parallelism, Completions: job.Spec.Completions, Suspend: job.Spec.Suspend,
			Template: v1.PodTemplateSpec{ObjectMeta: template}},
		Status: batchv1.JobStatus{Succeeded: job.Status.Succeeded, FailedIndexes: job.Status.FailedIndexes},
	}
	kept.Generation, kept.Labels, kept.Annotations = job.Generation, keys.Under(job.Labels), keys.Under(job.Annotations)
	if jobsuspension.IsMarked(job) {
		kept.DeletionTimestamp, kept.Status.Conditions = job.DeletionTimestamp, job.Status.Conditions
		kept.Status.Active, kept.Status.Terminating = job.Status.Active, job.Status.Terminating
	}
	return kept, nil
}

// named returns what the cache itself needs of an object.
func named(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID,
		ResourceVersion: meta.ResourceVersion}
}

// only returns the entries with these keys; nil where there are none.
func only(entries map[string]string, keys ...string) (found map[string]string) {
	for _, key := range keys {
		if value, ok := entries[key]; ok {
			if found == nil {
				found = map[string]string{}
			}
			found[key] = value
		}
	}
	return found
}
