package reservationstate

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// DefaultScheduler is the profile of templates that name none.
const DefaultScheduler = "lockstep-scheduler"

// CountedPods returns a Reservation as pods for queues to count: for each placement a pod on its node, with what no
// owner uses of it, and a pod without a node for each missing placement. They have one unnamed container, the namespace
// and queue label of the template, and its node constraints. See [InPlaceOf].
func CountedPods(r *v1alpha1.Reservation, now time.Time) []*v1.Pod {
	if WhyOver(r, now) != "" {
		return nil
	}
	pods := make([]*v1.Pod, 0, Replicas(r))
	for _, p := range r.Status.Placements {
		left := resource.FromList(p.Allocatable)
		if left.Add(resource.FromList(p.Allocated), -1); !p.Spent && !left.Zero() {
			pods = append(pods, podOf(r, p.Index, p.NodeName, left.List()))
		}
	}
	if now.Before(Start(r)) {
		return pods
	}
	asked := resource.RequestsOfTemplate(&r.Spec.Template)
	for _, index := range Missing(r) {
		pods = append(pods, podOf(r, index, "", asked))
	}
	return pods
}

func podOf(r *v1alpha1.Reservation, index int32, node string, asked v1.ResourceList) *v1.Pod {
	template := &r.Spec.Template
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace(r),
		UID: types.UID(fmt.Sprintf("%s/%d", r.UID, index))}}
	if queue, ok := template.Labels[v1alpha1.QueueLabel]; ok {
		pod.Labels = map[string]string{v1alpha1.QueueLabel: queue}
	}
	if of, ok := r.Annotations[v1alpha1.InPlaceOfAnnotation]; ok {
		pod.Annotations = map[string]string{v1alpha1.InPlaceOfAnnotation: of}
	}
	pod.Spec = v1.PodSpec{
		SchedulerName: SchedulerName(r), NodeName: node,
		NodeSelector: template.Spec.NodeSelector, Affinity: template.Spec.Affinity, Tolerations: template.Spec.Tolerations,
		Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: asked}}},
	}
	return pod
}

// InPlaceOf returns the pod that moves to the capacity of a pod of CountedPods; empty for none. While the moving pod
// counts in the same queue, only what exceeds its own amount counts.
func InPlaceOf(pod *v1.Pod) types.UID {
	return types.UID(pod.Annotations[v1alpha1.InPlaceOfAnnotation])
}
