package gang

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// blocked is the pods that found capacity held for others. No event of the
// cluster tells when a hold ends, so they are activated when one does.
type blocked struct {
	mu      sync.Mutex
	pods    map[types.UID]*v1.Pod
	dropped bool
}

func (b *blocked) add(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pods == nil {
		b.pods = map[types.UID]*v1.Pod{}
	}
	b.pods[pod.UID] = pod
}

// noteDrop notes that something is no longer held.
func (b *blocked) noteDrop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dropped = true
}

// take hands out the pods to look at again, if there is reason to.
func (b *blocked) take() []*v1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.dropped {
		return nil
	}
	b.dropped = false
	pods := make([]*v1.Pod, 0, len(b.pods))
	for _, pod := range b.pods {
		pods = append(pods, pod)
	}
	clear(b.pods)
	return pods
}
