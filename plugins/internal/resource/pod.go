package resource

import (
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Requests returns what kube-scheduler counts for a pod: its containers, its init containers if
// they ask for more, and its overhead; for a pod that was resized the larger of what it has and
// what it is to have.
func Requests(pod *v1.Pod) v1.ResourceList {
	return resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{
		UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
}
