package simulate

import (
	"context"
	"net/url"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// hasEnded selects the pods that the scheduler leaves out.
const hasEnded = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"

// Pods returns the pods of a namespace as they are in the cluster, also those that have ended. They are not to be
// changed.
func (s *Simulation) Pods(ctx context.Context, namespace string) ([]*v1.Pod, error) {
	var listed []*v1.Pod
	if err := s.await(ctx, func() (ok bool) { listed, ok = s.scheduler.Listed(); return ok }); err != nil {
		return nil, err
	}
	// Later than the others, so that a pod that ends meanwhile is there: twice, maybe.
	var list v1.PodList
	path := "/api/v1/namespaces/" + namespace + "/pods?" + url.Values{"fieldSelector": {hasEnded}}.Encode()
	if err := s.Read(ctx, path, &list); err != nil {
		return nil, err
	}
	ended := map[types.UID]bool{}
	var pods []*v1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed { // a dump selects nothing
			ended[pod.UID] = true
			pods = append(pods, pod)
		}
	}
	for _, pod := range listed {
		if pod.Namespace == namespace && !ended[pod.UID] {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}
