package simulate

import (
	"context"
	"net/url"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang-forecast/overlayserver"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// Exists reports whether an object is in the cluster, and not on its way out.
func (s *Simulation) Exists(ctx context.Context, resource schema.GroupVersionResource, namespace,
	name string) (bool, error) {
	var object metav1.PartialObjectMetadata
	err := s.Read(ctx, overlayserver.PathOf(resource, namespace, name), &object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil && object.DeletionTimestamp == nil, err
}

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
		if pod := &list.Items[i]; objectstate.HasEnded(pod) { // a dump selects nothing
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
