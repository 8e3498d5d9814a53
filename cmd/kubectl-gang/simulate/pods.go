package simulate

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/plugins/reservepods"
)

// listed is the pods that the scheduler has read, as they were in the cluster: what is supposed, and what it does itself, comes later.
type listed struct {
	mu   sync.Mutex
	pods map[string][]*v1.Pod // by namespace
	// synced reports whether they are all.
	synced cache.InformerSynced
}

// listPods notes what an informer that does not run yet lists.
func listPods(informer cache.SharedIndexInformer) (*listed, error) {
	l := &listed{pods: map[string][]*v1.Pod{}}
	registration, err := informer.AddEventHandler(l)
	if err != nil {
		return nil, fmt.Errorf("noting the pods of the cluster: %w", err)
	}
	l.synced = registration.HasSynced
	return l, nil
}

// OnAdd notes a pod of the first list.
func (l *listed) OnAdd(object any, isInInitialList bool) {
	pod, ok := object.(*v1.Pod)
	if !ok || !isInInitialList || reservepods.IsReservePod(pod) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pods[pod.Namespace] = append(l.pods[pod.Namespace], pod)
}

// OnUpdate does nothing: it is the scheduler's doing.
func (l *listed) OnUpdate(_, _ any) {}

// OnDelete does nothing, likewise.
func (l *listed) OnDelete(any) {}

// hasEnded selects the pods that the scheduler leaves out.
const hasEnded = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"

// Pods returns the pods of a namespace as they are in the cluster, also those that have ended. They are not to be changed.
func (s *Simulation) Pods(ctx context.Context, namespace string) ([]*v1.Pod, error) {
	if err := s.await(ctx, s.pods.synced); err != nil {
		return nil, err
	}
	s.pods.mu.Lock()
	pods := s.pods.pods[namespace]
	s.pods.mu.Unlock()
	// Later than the others, so that one that ends meanwhile is there: twice, maybe.
	var list v1.PodList
	path := "/api/v1/namespaces/" + namespace + "/pods?" + url.Values{"fieldSelector": {hasEnded}}.Encode()
	if err := s.Read(ctx, path, &list); err != nil {
		return nil, err
	}
	ended := map[types.UID]bool{}
	var all []*v1.Pod
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed { // a dump selects nothing
			ended[pod.UID] = true
			all = append(all, pod)
		}
	}
	for _, pod := range pods {
		if !ended[pod.UID] {
			all = append(all, pod)
		}
	}
	return all, nil
}
