package gang

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// blocked is the pods that found capacity held for others. No event of the
// cluster tells when a hold ends, so they are activated when one does on a node
// that refused them, in whichever profile; when a pod ends there; and when nodes
// change, since the queue knows of no event that could help what this plugin refused.
type blocked struct {
	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
	// on has the pods by the nodes that refused them.
	on map[string]map[types.UID]bool
	// ready are the pods to look at again.
	ready map[types.UID]*v1.Pod
}

// add notes a pod that these nodes refused. changed: holds have ended since it was
// first looked at, and it is not known where.
func (b *blocked) add(pod *v1.Pod, nodes []string, changed func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pods == nil {
		b.pods, b.on, b.ready = map[types.UID]*v1.Pod{}, map[string]map[types.UID]bool{}, map[types.UID]*v1.Pod{}
	}
	// Asked under the lock: what ends from now on is told to ended.
	if changed() {
		b.ready[pod.UID] = pod
		return
	}
	b.pods[pod.UID] = pod
	if len(nodes) > manyNodes {
		nodes = []string{anyNode}
	}
	for _, node := range nodes {
		if b.on[node] == nil {
			b.on[node] = map[types.UID]bool{}
		}
		b.on[node][pod.UID] = true
	}
}

// Of a pod that more nodes refused it is not remembered which: it is looked at again when
// something ends on anyNode.
const (
	manyNodes = 32
	anyNode   = ""
)

// ended takes in that something is free on a node that was held.
func (b *blocked) ended(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range []string{node, anyNode} {
		for uid := range b.on[name] {
			if pod := b.pods[uid]; pod != nil {
				b.ready[uid] = pod
				delete(b.pods, uid)
			}
		}
		delete(b.on, name)
	}
	if len(b.pods) == 0 {
		clear(b.on)
	}
}

// all has all pods looked at again: another node may take them.
func (b *blocked) all() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, pod := range b.pods {
		b.ready[uid] = pod
	}
	clear(b.pods)
	clear(b.on)
}

// take hands out the pods to look at again.
func (b *blocked) take() []*v1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	pods := make([]*v1.Pod, 0, len(b.ready))
	for _, pod := range b.ready {
		pods = append(pods, pod)
	}
	clear(b.ready)
	return pods
}
