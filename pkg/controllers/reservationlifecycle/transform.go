package reservationlifecycle

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// StripPod is a transform for the cache: it adds what this package reads of a pod that uses a Reservation
// to what another transform keeps. All that its containers ask for becomes one container without a name.
func StripPod(keep cache.TransformFunc) cache.TransformFunc {
	return func(object any) (any, error) {
		pod, ok := object.(*v1.Pod)
		value := ""
		if ok {
			value = pod.Annotations[v1alpha1.ReservationAllocatedAnnotation]
		}
		kept, err := keep(object)
		if err != nil || value == "" {
			return kept, err
		}
		stripped, ok := kept.(*v1.Pod)
		if !ok {
			return kept, nil
		}
		if stripped.Annotations == nil {
			stripped.Annotations = map[string]string{}
		}
		stripped.Annotations[v1alpha1.ReservationAllocatedAnnotation] = value
		stripped.CreationTimestamp, stripped.Spec.NodeName, stripped.Status.Phase = pod.CreationTimestamp,
			pod.Spec.NodeName, pod.Status.Phase
		if !podutil.IsPodTerminal(pod) {
			stripped.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: resource.Requests(pod)}}}
		}
		return stripped, nil
	}
}

// StripNode is a transform for the cache: it adds what this package reads of a node, beside what the cache
// needs itself, to what another transform keeps.
func StripNode(keep cache.TransformFunc) cache.TransformFunc {
	return func(object any) (any, error) {
		kept, err := keep(object)
		node, isNode := object.(*v1.Node)
		stripped, wasNode := kept.(*v1.Node)
		if err != nil || !isNode || !wasNode {
			return kept, err
		}
		stripped.Spec.Unschedulable = node.Spec.Unschedulable
		for _, key := range append([]string{v1alpha1.ReservationMarksAnnotation}, markKeys...) {
			if value, ok := node.Annotations[key]; ok {
				if stripped.Annotations == nil {
					stripped.Annotations = map[string]string{}
				}
				stripped.Annotations[key] = value
			}
		}
		return stripped, nil
	}
}
