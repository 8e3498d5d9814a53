package reservationlifecycle

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// StripPod is a transform for the cache: it adds what this package reads of a pod that uses a Reservation
// to what another transform keeps. All that its containers ask for becomes one container without a name.
func StripPod(keep cache.TransformFunc) cache.TransformFunc {
	return objects.Keep(keep, func(stripped, pod *v1.Pod) {
		if !keepAnnotation(stripped, pod, v1alpha1.ReservationAllocatedAnnotation) {
			return
		}
		stripped.CreationTimestamp, stripped.Spec.NodeName, stripped.Status.Phase = pod.CreationTimestamp,
			pod.Spec.NodeName, pod.Status.Phase
		if !podutil.IsPodTerminal(pod) {
			stripped.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: resource.Requests(pod)}}}
		}
	})
}

// StripNode is a transform for the cache: it adds what this package reads of a node, beside what the cache
// needs itself, to what another transform keeps.
func StripNode(keep cache.TransformFunc) cache.TransformFunc {
	return objects.Keep(keep, func(stripped, node *v1.Node) {
		stripped.Spec.Unschedulable = node.Spec.Unschedulable
		for _, key := range append([]string{v1alpha1.ReservationMarksAnnotation}, markKeys...) {
			keepAnnotation(stripped, node, key)
		}
	})
}

// keepAnnotation copies an annotation; it returns false if there is none.
func keepAnnotation(stripped, object metav1.Object, key string) bool {
	value, found := object.GetAnnotations()[key]
	if found {
		annotations := stripped.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		stripped.SetAnnotations(annotations)
	}
	return found
}
