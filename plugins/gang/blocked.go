package gang

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// blocked is the pods that found capacity held for others. No event of the
// cluster tells when a hold ends, so they are activated when one does, in
// whichever profile.
type blocked struct {
	mu   sync.Mutex
	pods map[types.UID]blockedPod
}

// blockedPod is a pod, and the count of ended holds from before it was refused: one
// that ended while it was being looked at counts too.
type blockedPod struct {
	pod   *v1.Pod
	ended uint64
}

func (b *blocked) add(pod *v1.Pod, ended uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pods == nil {
		b.pods = map[types.UID]blockedPod{}
	}
	b.pods[pod.UID] = blockedPod{pod, ended}
}

// take hands out the pods to look at again: those since whose refusal a hold has
// ended.
func (b *blocked) take(ended uint64) []*v1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	var pods []*v1.Pod
	for uid, one := range b.pods {
		if one.ended != ended {
			pods = append(pods, one.pod)
			delete(b.pods, uid)
		}
	}
	return pods
}
