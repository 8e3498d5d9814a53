package preemption

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// endingPods are the pods on nodes that are being deleted: the nodes by UID. It is safe for concurrent use.
type endingPods struct {
	mu    sync.Mutex
	nodes map[types.UID]string
}

func (e *endingPods) podChanged(pod *v1.Pod) {
	if pod.DeletionTimestamp == nil || pod.Spec.NodeName == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.nodes == nil {
		e.nodes = map[types.UID]string{}
	}
	e.nodes[pod.UID] = pod.Spec.NodeName
}

func (e *endingPods) podDeleted(pod *v1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.nodes, pod.UID)
}

// all returns the pods.
func (e *endingPods) all() map[types.UID]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	uids := make(map[types.UID]bool, len(e.nodes))
	for uid := range e.nodes {
		uids[uid] = true
	}
	return uids
}

// anyBeside reports whether a pod is ending on one of some nodes that is not among those known.
func (e *endingPods) anyBeside(known map[types.UID]bool, nodes fwk.NodeInfoLister) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, node := range e.nodes {
		if known[uid] {
			continue
		}
		if _, err := nodes.Get(node); err == nil {
			return true
		}
	}
	return false
}
