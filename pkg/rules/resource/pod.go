package resource

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// absurd is the largest amount that is added up: Kubernetes takes seconds to add to one of ten million digits.
const absurd = 1e30

var absurdQuantity = resource.MustParse("1e30")

// Requests returns what kube-scheduler counts for a pod: its containers, its init containers if they ask for more, and
// its overhead; for a pod that is being resized, the larger of its current and its requested amount. More than 1e30
// counts as 1e30, which nothing has.
func Requests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(countable(pod), resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}

// RequestsOfTemplate returns the requests of a pod of a template. As the API server does when it creates the pod, it
// lets a limit stand in for a missing request; for that of the whole pod the requests of its containers come first.
func RequestsOfTemplate(template *v1.PodTemplateSpec) v1.ResourceList {
	pod := &v1.Pod{Spec: *template.Spec.DeepCopy()}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			requestLimits(&containers[i].Resources)
		}
	}
	if all := pod.Spec.Resources; all != nil && len(all.Limits) > 0 {
		if all.Requests == nil {
			all.Requests = v1.ResourceList{}
		}
		sum := resourcehelper.AggregateContainerRequests(countable(pod), resourcehelper.PodResourcesOptions{})
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			amount, has := sum[name]
			if _, said := all.Requests[name]; has && !said {
				all.Requests[name] = amount
			}
		}
		requestLimits(all)
	}
	return Requests(pod)
}

// requestLimits copies limits to missing requests.
func requestLimits(resources *v1.ResourceRequirements) {
	for name, amount := range resources.Limits {
		if _, said := resources.Requests[name]; !said {
			if resources.Requests == nil {
				resources.Requests = v1.ResourceList{}
			}
			resources.Requests[name] = amount
		}
	}
}

// countable returns a pod whose amounts can be added up: itself, if nothing of it is absurd.
func countable(pod *v1.Pod) *v1.Pod {
	large := func(quantity *resource.Quantity) bool { return quantity.AsApproximateFloat64() > absurd }
	found := false
	for list := range requested(&pod.Spec) {
		for _, quantity := range list {
			found = found || large(&quantity)
		}
	}
	if !found {
		return pod
	}
	pod = &v1.Pod{Spec: *pod.Spec.DeepCopy(), Status: pod.Status}
	for list := range requested(&pod.Spec) {
		for name, quantity := range list {
			if large(&quantity) {
				list[name] = absurdQuantity.DeepCopy()
			}
		}
	}
	return pod
}
