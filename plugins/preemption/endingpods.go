package preemption

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// endingPods are the pods on nodes that are being deleted, by UID. It is safe for concurrent use.
type endingPods struct {
	mu   sync.Mutex
	uids map[types.UID]bool
}

func (e *endingPods) podChanged(pod *v1.Pod) {
	if pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.uids == nil {
		e.uids = map[types.UID]bool{}
	}
	e.uids[pod.UID] = true
}

func (e *endingPods) podDeleted(pod *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.uids, pod.UID)
}

// anyBeside reports whether a pod is ending that is not among these.
func (e *endingPods) anyBeside(known map[types.UID]bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid := range e.uids {
		if !known[uid] {
			return true
		}
	}
	return false
}
