package gpushare

import (
	"maps"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// Ledger is what the profiles of a process share: the cards of pods that were reserved
// here, how the cards of nodes were read, and what was reported to users. It is safe for
// concurrent use.
//
// A pod stays in it until it is gone, not only until its annotation has come: the
// scheduler's cache, and the snapshot of a cycle, may have the pod without it for longer.
type Ledger struct {
	mu sync.RWMutex
	// pods are the pods with a reserved card; byNode has them by node.
	pods   map[types.UID]reservation
	byNode map[string]map[types.UID]reservation
	// layouts are the cards of nodes, by name.
	layouts map[string]layout
	// told is the value that was last reported, for each key of an object.
	told map[types.UID]map[string]string
}

// reservation is a card that a pod has.
type reservation struct {
	node   string
	card   int
	memory int64
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		pods: map[types.UID]reservation{}, byNode: map[string]map[types.UID]reservation{},
		layouts: map[string]layout{}, told: map[types.UID]map[string]string{},
	}
}

func (l *Ledger) put(pod types.UID, r reservation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(pod)
	l.pods[pod] = r
	nested.Set(l.byNode, r.node, pod, r)
}

// drop is for callers that have the lock.
func (l *Ledger) drop(pod types.UID) {
	r, ok := l.pods[pod]
	if !ok {
		return
	}
	delete(l.pods, pod)
	nested.Delete(l.byNode, r.node, pod)
}

// release forgets the card that a pod has on a node.
func (l *Ledger) release(pod types.UID, node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pods[pod].node == node {
		l.drop(pod)
	}
}

// reservationOf returns the card of a pod.
func (l *Ledger) reservationOf(pod types.UID) (reservation, bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	r, ok := l.pods[pod]
	return r, ok
}

// reservationsOn lists the reservations on a node, by pod.
func (l *Ledger) reservationsOn(node string) map[types.UID]reservation {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return maps.Clone(l.byNode[node])
}

// podChanged drops a bound pod from the ledger where its annotation differs: it was edited.
func (l *Ledger) podChanged(pod *v1.Pod) {
	if pod.Spec.NodeName == "" {
		return
	}
	if r, ok := l.reservationOf(pod.UID); ok && pod.Annotations[v1alpha1.GPUCardAnnotation] != strconv.Itoa(r.card) {
		l.release(pod.UID, r.node)
	}
}

func (l *Ledger) podDeleted(pod types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(pod)
	delete(l.told, pod)
}

func (l *Ledger) nodeDeleted(node *v1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.layouts, node.Name)
	delete(l.told, node.UID)
}

// isNews reports whether a value of an object has not been reported yet, and records that it is now.
func (l *Ledger) isNews(object types.UID, key, value string) bool {
	l.mu.RLock() // most are no news, and filters of many nodes ask at once
	before, told := l.told[object][key]
	l.mu.RUnlock()
	if told && before == value {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, told := l.told[object][key]; told && before == value {
		return false
	}
	nested.Set(l.told, object, key, value)
	return true
}

// layout returns the cards of a node, which it reads again where they have changed.
func (l *Ledger) layout(node *v1.Node, total int64) layout {
	now := describedOn(node, total)
	l.mu.RLock()
	known, ok := l.layouts[node.Name]
	l.mu.RUnlock()
	if ok && known.described == now {
		return known
	}
	read := readLayout(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.layouts[node.Name] = read
	return read
}
