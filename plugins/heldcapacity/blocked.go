package heldcapacity

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
)

// blocked is the pods that found capacity held for others. No event of the
// cluster shows when a hold ends, so they are activated when one does on a node
// that refused them, in any profile; when a pod ends there; and when nodes
// change, since the queue knows no event that could help what this plugin refused.
type blocked struct {
	mu   sync.Mutex
	pods map[types.UID]*v1.Pod
	// on has the pods by the nodes that refused them.
	on map[string]map[types.UID]bool
	// ready are the pods to be tried again, and turn is how often some were handed out.
	ready map[types.UID]retried
	turn  int
	// since is where something has ended since the present cycle began: the cycle may not have seen that.
	since sets.Set[string]
}

// retried is a pod to retry, from a turn on.
type retried struct {
	pod  *v1.Pod
	from int
}

// maxAtOnce is how many pods are tried again at a time. While things end one after the
// other, each end would cause retries of all pods that fit nowhere, and those would block the scheduling thread.
const maxAtOnce = 50

// begin notes that a cycle begins, which sees everything that has ended.
func (b *blocked) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.since)
}

// addPod records a pod that these nodes refused in the present cycle. Where something has ended on one of them
// meanwhile, it is to be tried again.
func (b *blocked) addPod(pod *v1.Pod, nodes []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(nodes) > manyNodes {
		nodes = []string{anyNode}
	}
	if b.missed(nodes) {
		b.retry(pod)
		return
	}
	if b.pods == nil {
		b.pods, b.on = map[types.UID]*v1.Pod{}, map[string]map[types.UID]bool{}
	}
	b.pods[pod.UID] = pod
	for _, node := range nodes {
		if b.on[node] == nil {
			b.on[node] = map[types.UID]bool{}
		}
		b.on[node][pod.UID] = true
	}
}

// missed reports whether something has ended on one of these nodes since the cycle began.
func (b *blocked) missed(nodes []string) bool {
	if b.since.Has(anyNode) {
		return true
	}
	if slices.Contains(nodes, anyNode) {
		return b.since.Len() > 0
	}
	return b.since.HasAny(nodes...)
}

// A pod that more nodes than manyNodes refused is noted without them: it is tried again when
// something ends on anyNode.
const (
	manyNodes = 32
	anyNode   = ""
	// anyHold is where pods wait that no node refused: something has to be held for them first, or
	// become theirs. Pods that end do not help these.
	anyHold = " "
)

// released notes that something in the ledger is free on a node, or can be used by others.
func (b *blocked) released(node string) {
	b.ended(node)
	b.ended(anyHold)
}

// ended notes that something is free on a node that was held.
func (b *blocked) ended(node string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteFreed(node)
	for _, name := range []string{node, anyNode} {
		for uid := range b.on[name] {
			if pod := b.pods[uid]; pod != nil {
				b.retry(pod)
				delete(b.pods, uid)
			}
		}
		delete(b.on, name)
	}
	if len(b.pods) == 0 {
		clear(b.on)
	}
}

// all rouses all pods: another node may take them.
func (b *blocked) retryAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteFreed(anyNode)
	for _, pod := range b.pods {
		b.retry(pod)
	}
	clear(b.pods)
	clear(b.on)
}

// noteFreed records that something has ended on a node.
func (b *blocked) noteFreed(node string) {
	if b.since == nil {
		b.since = sets.New[string]()
	}
	b.since.Insert(node)
}

// retry makes a pod ready for a retry. A pod that is ready already keeps its turn.
func (b *blocked) retry(pod *v1.Pod) {
	if b.ready == nil {
		b.ready = map[types.UID]retried{}
	}
	r, known := b.ready[pod.UID]
	if !known {
		r.from = b.turn
	}
	r.pod = pod
	b.ready[pod.UID] = r
}

// takeRetries returns the pods to retry, or as many of them as may be at a time: half of them are the first in rank,
// and half those that have waited longest, so that each has its turn. The others are left for the next time.
func (b *blocked) takeRetries() []*v1.Pod {
	b.mu.Lock()
	ready := slices.Collect(maps.Values(b.ready))
	b.turn++
	b.mu.Unlock()
	if len(ready) > maxAtOnce { // sorted without the lock, which cycles need
		slices.SortFunc(ready, compareRetried)
		slices.SortStableFunc(ready[maxAtOnce/2:], func(x, y retried) int { return cmp.Compare(x.from, y.from) })
		ready = ready[:maxAtOnce]
	}
	pods := make([]*v1.Pod, len(ready))
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range ready {
		pods[i] = r.pod
		delete(b.ready, r.pod.UID)
	}
	return pods
}

// compareRetried orders by: 1. priority, high first; 2. creation, old first; 3. UID.
func compareRetried(x, y retried) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(y.pod), corev1helpers.PodPriority(x.pod)),
		x.pod.CreationTimestamp.Compare(y.pod.CreationTimestamp.Time),
		cmp.Compare(x.pod.UID, y.pod.UID),
	)
}
