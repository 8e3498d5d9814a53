package preemption

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// endingPods are the pods on nodes that are being deleted. It is safe for concurrent use.
type endingPods struct {
	// nodes are the names of their nodes, by UID.
	nodes sync.Map
}

func (e *endingPods) podChanged(pod *v1.Pod) {
	if pod.DeletionTimestamp != nil && pod.Spec.NodeName != "" {
		e.nodes.Store(pod.UID, pod.Spec.NodeName)
	}
}

func (e *endingPods) podDeleted(pod *v1.Pod) { e.nodes.Delete(pod.UID) }

// all returns the pods.
func (e *endingPods) all() map[types.UID]bool {
	uids := map[types.UID]bool{}
	for uid := range e.nodes.Range {
		uids[uid.(types.UID)] = true
	}
	return uids
}

// anyBeside reports whether a pod is ending on one of some nodes that is not among those known.
func (e *endingPods) anyBeside(known map[types.UID]bool, nodes fwk.NodeInfoLister) bool {
	for uid, node := range e.nodes.Range {
		if known[uid.(types.UID)] {
			continue
		}
		if _, err := nodes.Get(node.(string)); err == nil {
			return true
		}
	}
	return false
}
