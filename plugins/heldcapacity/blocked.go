package heldcapacity

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// blocked are the pods that were refused because of what is held for others. No event of the cluster tells that a hold
// has ended, so they are activated when one ends on a node that refused them, in any profile; when a pod ends there;
// and when nodes or devices change.
type blocked struct {
	mu   sync.Mutex
	pods map[types.UID]refusal
	// waiting is how many of them each place refused: a node, anyNode or anyHold.
	waiting map[string]int
	// count is how often something has ended. freed is the count when something last did on a node, anyNode for whichever;
	// anywhere is that when something last did that may help on any node.
	count    int
	freed    map[string]int
	anywhere int
	// began is the count when the present cycle began: it has seen what had ended by then.
	began int
	// refusals counts the cycles that failed.
	refusals int
	// due: there may be pods to be tried again.
	due bool
}

// refusal is a pod that found capacity held for others.
type refusal struct {
	pod *v1.Pod
	// nodes are those that refused it.
	nodes []string
	// seen is the count when its cycle began.
	seen int
	// number is its place among all refusals.
	number int
}

const (
	// maxAtOnce is how many pods are tried again at a time. While things end one after the other, each end would cause
	// retries of all pods that fit nowhere, and those would block the scheduling thread.
	maxAtOnce = 50
	// A pod that more nodes than manyNodes refused is noted without them: it is tried again when something ends on
	// anyNode.
	manyNodes = 32
	anyNode   = ""
	// anyHold is where pods wait that no node refused: something has to be held for them first, or become theirs. Pods
	// that end do not help these.
	anyHold = " "
	// anyDevice is where pods wait, too, that may need devices.
	anyDevice = "  "
)

// begin notes that a cycle begins, which sees everything that has ended.
func (b *blocked) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.began = b.count
	if len(b.freed) > 2*len(b.waiting)+manyNodes { // no cycle is under way that may come to wait for another place
		maps.DeleteFunc(b.freed, func(place string, _ int) bool { return b.waiting[place] == 0 })
	}
}

// addPod records a pod that these nodes refused in the present cycle. If something has ended on one of them since the
// cycle began, the pod is due for another try.
func (b *blocked) addPod(pod *v1.Pod, nodes []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(nodes) > manyNodes {
		nodes = []string{anyNode}
	}
	if mayNeedDevices(pod) {
		nodes = append(slices.Clip(nodes), anyDevice)
	}
	if b.pods == nil {
		b.pods, b.waiting = map[types.UID]refusal{}, map[string]int{}
	}
	b.drop(pod.UID)
	b.refusals++
	r := refusal{pod: pod, nodes: nodes, seen: b.began, number: b.refusals}
	b.pods[pod.UID] = r
	for _, place := range nodes {
		b.waiting[place]++
	}
	b.due = b.due || b.mayFit(r)
}

// mayNeedDevices reports whether a pod has claims, or asks for what a DeviceClass may back.
func mayNeedDevices(pod *v1.Pod) bool {
	for name := range resource.Requests(pod) {
		if schedutil.IsDRAExtendedResourceName(name) {
			return true
		}
	}
	return len(pod.Spec.ResourceClaims) > 0
}

// forget records that a pod has a node, or is gone.
func (b *blocked) forget(pod types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(pod)
}

// drop forgets a pod. mu must be held.
func (b *blocked) drop(pod types.UID) {
	for _, place := range b.pods[pod].nodes {
		if b.waiting[place]--; b.waiting[place] == 0 {
			delete(b.waiting, place)
		}
	}
	delete(b.pods, pod)
}

// mayFit reports whether something has ended that a pod has not seen, and that may help it. mu must be held.
func (b *blocked) mayFit(r refusal) bool {
	return b.anywhere > r.seen ||
		slices.ContainsFunc(r.nodes, func(node string) bool { return b.freed[node] > r.seen })
}

// released notes that something in the ledger is free on a node, or can be used by others; of no name, anywhere.
func (b *blocked) released(node string) { b.note(node, anyNode, anyHold) }

// ended notes that something is free on a node that was held.
func (b *blocked) ended(node string) { b.note(node, anyNode) }

// devicesFreed notes that there are more free devices.
func (b *blocked) devicesFreed() { b.note(anyDevice) }

// retryAll notes that any node may take any pod now.
func (b *blocked) retryAll() { b.note(anyNode) }

// note notes that something has ended that may help pods that wait in these places. The first is where it has: in
// anyNode it may help all.
func (b *blocked) note(places ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count++
	if b.freed == nil {
		b.freed = map[string]int{}
	}
	for _, place := range places {
		b.freed[place] = b.count
		b.due = b.due || b.waiting[place] > 0
	}
	if places[0] == anyNode {
		b.anywhere, b.due = b.count, true
	}
}

// takeRetries returns the pods to retry, or as many of them as may be at a time: half of them are the first in rank,
// and half those that have waited longest, so that each has its turn. The others are left for the next time.
func (b *blocked) takeRetries() []*v1.Pod {
	ready := b.ready()
	if len(ready) > maxAtOnce { // sorted without the lock, which cycles need
		slices.SortFunc(ready, compareRank)
		slices.SortFunc(ready[maxAtOnce/2:], func(x, y refusal) int { return cmp.Compare(x.number, y.number) })
		ready = ready[:maxAtOnce]
	}
	pods := make([]*v1.Pod, len(ready))
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, r := range ready {
		pods[i] = r.pod
		if b.pods[r.pod.UID].number == r.number {
			b.drop(r.pod.UID)
		}
	}
	return pods
}

// ready returns the pods that may fit by now.
func (b *blocked) ready() (ready []refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.due {
		return nil
	}
	for _, r := range b.pods {
		if b.mayFit(r) {
			ready = append(ready, r)
		}
	}
	b.due = len(ready) > maxAtOnce
	return ready
}

// compareRank orders by: 1. priority, high first; 2. creation, old first; 3. UID.
func compareRank(x, y refusal) int {
	return cmp.Or(
		cmp.Compare(corev1helpers.PodPriority(y.pod), corev1helpers.PodPriority(x.pod)),
		x.pod.CreationTimestamp.Compare(y.pod.CreationTimestamp.Time),
		cmp.Compare(x.pod.UID, y.pod.UID),
	)
}
