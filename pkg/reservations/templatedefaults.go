package reservations

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-sh/lockstep/pkg/kube/podadmission"
)

// admitted returns the pod that the API server would create from the template of a Reservation. preempts: it may evict
// others, if its class allows that.
func (r *Registry) admitted(ctx context.Context, template *v1.Pod, preempts bool) (*v1.Pod, error) {
	pod := withoutAdmission(template)
	if err := podadmission.Admit(ctx, cluster{r.client}, pod); err != nil {
		return nil, inTemplate(err)
	}
	if why := refusal(pod); why != "" {
		return nil, &refusedError{why}
	}
	if asked := template.Spec.PreemptionPolicy; !preempts || asked != nil && *asked == v1.PreemptNever {
		pod.Spec.PreemptionPolicy = new(v1.PreemptNever)
	}
	return pod, nil
}

// priorityOf returns the priority of the template of a Reservation.
func (r *Registry) priorityOf(ctx context.Context, template *v1.Pod) (*int32, error) {
	pod := withoutAdmission(template)
	if err := podadmission.Prioritize(ctx, cluster{r.client}, pod); err != nil {
		return nil, inTemplate(err)
	}
	return pod.Spec.Priority, nil
}

// withoutAdmission returns a copy of a template without what admission writes: a template may be copied from a pod.
func withoutAdmission(template *v1.Pod) *v1.Pod {
	pod := template.DeepCopy()
	pod.Spec.Priority, pod.Spec.PreemptionPolicy = nil, nil
	if pod.Spec.RuntimeClassName != nil {
		pod.Spec.Overhead = nil
	}
	return pod
}

// refusedError is why the API server would create no pod from a template, or why that is unknown.
type refusedError struct{ why string }

func (e *refusedError) Error() string { return e.why }

// inTemplate returns an error of podadmission with the path in the Reservation.
func inTemplate(err error) error {
	var refusal *podadmission.Refusal
	switch {
	case errors.As(err, &refusal):
		return &refusedError{fmt.Sprintf("spec.template.%v: looked at again every %v; "+
			"or make another Reservation with a template that is right", refusal, maxPause)}
	case apierrors.IsForbidden(err):
		return &refusedError{fmt.Sprintf("%v: update the ClusterRole of the scheduler; tried again every %v", err, maxPause)}
	}
	return err
}

// cluster reads what admission depends on from the API server.
type cluster struct{ client kubernetes.Interface }

// PriorityClasses implements podadmission.Cluster.
func (c cluster) PriorityClasses(ctx context.Context) ([]schedulingv1.PriorityClass, error) {
	list, err := c.client.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// RuntimeClass implements podadmission.Cluster.
func (c cluster) RuntimeClass(ctx context.Context, name string) (*nodev1.RuntimeClass, error) {
	class, err := c.client.NodeV1().RuntimeClasses().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return class, err
}

// LimitRanges implements podadmission.Cluster.
func (c cluster) LimitRanges(ctx context.Context, namespace string) ([]v1.LimitRange, error) {
	list, err := c.client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}
