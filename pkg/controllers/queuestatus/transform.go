package queuestatus

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// StripPod is a transform for the cache: it adds what this package reads of a pod to what
// another transform keeps. The requests of all its containers become one container without a
// name, which no pod of the API server has.
func StripPod(keep cache.TransformFunc) cache.TransformFunc {
	return objects.Keep(keep, func(stripped, pod *v1.Pod) {
		spec := &stripped.Spec
		spec.SchedulerName, spec.NodeName, spec.SchedulingGates = pod.Spec.SchedulerName,
			pod.Spec.NodeName, pod.Spec.SchedulingGates
		spec.SchedulingGroup = pod.Spec.SchedulingGroup
		asked := places(pod)
		spec.NodeSelector, spec.Affinity, spec.Tolerations = asked.NodeSelector, asked.Affinity, asked.Tolerations
		spec.ResourceClaims, stripped.Status.ResourceClaimStatuses = pod.Spec.ResourceClaims, pod.Status.ResourceClaimStatuses
		stripped.Status.Phase, stripped.CreationTimestamp = pod.Status.Phase, pod.CreationTimestamp
		if queue, ok := pod.Labels[v1alpha1.QueueLabel]; ok && stripped.Labels == nil {
			stripped.Labels = map[string]string{v1alpha1.QueueLabel: queue}
		}
		if gangstate.AsksUnknownGang(pod) && stripped.Annotations == nil {
			stripped.Annotations = map[string]string{v1alpha1.GangAnnotation: pod.Annotations[v1alpha1.GangAnnotation]}
		}
		if len(stripped.Status.Conditions) == 0 {
			stripped.Status.Conditions = whyItWaits(pod)
		}
		if !podutil.IsPodTerminal(pod) {
			spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: resource.Requests(pod)}}}
		}
	})
}

// whyItWaits returns the reason in the pod's condition why it waits.
func whyItWaits(pod *v1.Pod) []v1.PodCondition {
	_, c := podutil.GetPodCondition(&pod.Status, v1.PodScheduled)
	if c == nil || c.Status != v1.ConditionFalse {
		return nil
	}
	return []v1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
}

// places returns what a pod asks of nodes.
func places(pod *v1.Pod) v1.PodSpec {
	asked := v1.PodSpec{NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		required := affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		asked.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	}
	return asked
}

// StripNode is a transform for the cache: it keeps what a node has to give, and to which pods.
func StripNode(object any) (any, error) {
	node, ok := object.(*v1.Node)
	if !ok {
		return object, nil
	}
	meta := named(&node.ObjectMeta)
	meta.Labels = node.Labels
	return &v1.Node{ObjectMeta: meta, Spec: v1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
		Status: v1.NodeStatus{Allocatable: node.Status.Allocatable}}, nil
}

// StripNamespace is a transform for the cache: it keeps the queue that a namespace names.
func StripNamespace(object any) (any, error) {
	namespace, ok := object.(*v1.Namespace)
	if !ok {
		return object, nil
	}
	stripped := &v1.Namespace{ObjectMeta: named(&namespace.ObjectMeta)}
	if queue, ok := namespace.Annotations[v1alpha1.QueueLabel]; ok {
		stripped.Annotations = map[string]string{v1alpha1.QueueLabel: queue}
	}
	return stripped, nil
}

// named returns what the cache itself needs of an object.
func named(meta *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion}
}
