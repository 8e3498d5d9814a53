package hold

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// Port is a host port that a pod binds.
type Port struct {
	IP, Protocol string
	Number       int32
}

// Reason is why capacity is held.
type Reason string

// Reasons.
const (
	// Plan: a gang's plan gives the node to a member that is on its way.
	Plan Reason = "plan"
	// Nomination: pods were evicted to make room for this one.
	Nomination Reason = "nomination"
)

// Reasons lists all reasons.
func Reasons() []Reason { return []Reason{Plan, Nomination} }

// Hold is capacity on a node that only its holder may use.
type Hold struct {
	// For is the pod that will take the place of the hold; there is one at most.
	For types.UID
	// Holder is who may use the capacity: a group of gangs, or a pod.
	Holder string
	Node   string
	Reason Reason
	// Priority is that of whoever the capacity is held for.
	Priority int32
	Request  resource.Vector
	Ports    []Port
	// Recalled tells that it is known from what was written in a pod's status, by
	// whomever, and not because this process promised it.
	Recalled bool
}

// Ledger is all holds.
type Ledger struct {
	holds map[types.UID]Hold
	nodes map[string]*node
	count map[Reason]int
}

// node is what is held on a node: in all, and by holder.
type node struct {
	total  Taken
	holder map[string]*Taken
}

// Taken is what holds add up to.
type Taken struct {
	Pods    int
	Request resource.Vector
	Ports   []Port
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{holds: map[types.UID]Hold{}, nodes: map[string]*node{}, count: map[Reason]int{}}
}

// Put adds a hold, in place of the one that its pod had.
func (l *Ledger) Put(h Hold) {
	l.Drop(h.For)
	n := l.nodes[h.Node]
	if n == nil {
		n = &node{total: Taken{Request: resource.Vector{}}, holder: map[string]*Taken{}}
		l.nodes[h.Node] = n
	}
	if n.holder[h.Holder] == nil {
		n.holder[h.Holder] = &Taken{Request: resource.Vector{}}
	}
	l.holds[h.For] = h
	l.count[h.Reason]++
	n.total.add(h, 1)
	n.holder[h.Holder].add(h, 1)
}

// Drop ends the hold of a pod. It answers false where there was none.
func (l *Ledger) Drop(pod types.UID) bool {
	h, ok := l.holds[pod]
	if !ok {
		return false
	}
	delete(l.holds, pod)
	l.count[h.Reason]--
	n := l.nodes[h.Node]
	n.total.add(h, -1)
	if mine := n.holder[h.Holder]; mine.Pods == 1 {
		delete(n.holder, h.Holder)
	} else {
		mine.add(h, -1)
	}
	if n.total.Pods == 0 {
		delete(l.nodes, h.Node)
	}
	return true
}

func (t *Taken) add(h Hold, by int) {
	t.Pods += by
	t.Request.Add(h.Request, int64(by))
	if by > 0 {
		t.Ports = append(t.Ports, h.Ports...)
		return
	}
	for _, gone := range h.Ports {
		for i, port := range t.Ports {
			if port == gone {
				t.Ports = append(t.Ports[:i:i], t.Ports[i+1:]...)
				break
			}
		}
	}
}

// Len is the number of holds.
func (l *Ledger) Len() int { return len(l.holds) }

// Count is the number of holds for a reason.
func (l *Ledger) Count(r Reason) int { return l.count[r] }

// Nodes lists the nodes on which something is held.
func (l *Ledger) Nodes() []string {
	names := make([]string, 0, len(l.nodes))
	for name := range l.nodes {
		names = append(names, name)
	}
	return names
}

// Hold answers the hold of a pod.
func (l *Ledger) Hold(pod types.UID) (Hold, bool) {
	h, ok := l.holds[pod]
	return h, ok
}

// Holders lists who holds something for a reason at less than a priority.
func (l *Ledger) Holders(reason Reason, below int32) []string {
	found := map[string]bool{}
	for _, h := range l.holds {
		if h.Reason == reason && h.Priority < below {
			found[h.Holder] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// On lists who holds something on a node.
func (l *Ledger) On(nodeName string) []string {
	n := l.nodes[nodeName]
	if n == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(n.holder))
}

// Of lists what a holder holds for a reason, by the UID of the pods.
func (l *Ledger) Of(holder string, reason Reason) []Hold {
	var found []Hold
	for _, h := range l.holds {
		if h.Holder == holder && h.Reason == reason {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, func(a, b Hold) int { return cmp.Compare(a.For, b.For) })
	return found
}

// Others is what is held on a node by anybody but the given holders, and not for one
// of the pods that are counted as being there already. The second result is false
// where nothing is, and it costs next to nothing to learn that.
func (l *Ledger) Others(nodeName string, there iter.Seq[types.UID], holders ...string) (Taken, bool) {
	n := l.nodes[nodeName]
	if n == nil {
		return Taken{}, false
	}
	left := Taken{Pods: n.total.Pods}
	for _, holder := range holders {
		if mine := n.holder[holder]; mine != nil {
			left.Pods -= mine.Pods
		}
	}
	if left.Pods == 0 {
		return Taken{}, false
	}
	left.Request = resource.Vector{}
	for name, t := range n.holder {
		if !slices.Contains(holders, name) {
			left.Request.Add(t.Request, 1)
			left.Ports = append(left.Ports, t.Ports...)
		}
	}
	for pod := range there {
		if h, ok := l.holds[pod]; ok && h.Node == nodeName && !slices.Contains(holders, h.Holder) {
			left.add(h, -1)
		}
	}
	return left, left.Pods > 0
}
