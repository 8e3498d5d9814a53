package hold

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"strings"

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

// Holder is what capacity is held for: a group of gangs of a profile, or one pod of it. All
// profiles of a process share a ledger.
type Holder struct {
	Profile string
	// Group is the name of a group of gangs, or what SinglePod returns.
	Group string
}

// SinglePod is the group of a pod that is placed by itself. No group of gangs has such a
// name.
func SinglePod(pod types.UID) string { return podPrefix + string(pod) }

// IsSinglePod reports whether the holder is a pod that is placed by itself.
func (h Holder) IsSinglePod() bool { return strings.HasPrefix(h.Group, podPrefix) }

const podPrefix = "pod:"

// IsNone reports whether there is no holder: it is the zero value.
func (h Holder) IsNone() bool { return h == Holder{} }

// Compare orders holders by profile and group.
func (h Holder) Compare(other Holder) int {
	return cmp.Or(cmp.Compare(h.Profile, other.Profile), cmp.Compare(h.Group, other.Group))
}

// String is the holder's name in logs.
func (h Holder) String() string { return h.Profile + "/" + h.Group }

// Hold is capacity on a node that only its holder may use.
type Hold struct {
	// For is the pod that will take the place of the hold; there is one at most.
	For types.UID
	// Holder is what may use the capacity.
	Holder Holder
	Node   string
	Reason Reason
	// Priority is that of whoever the capacity is held for.
	Priority int32
	Request  resource.Vector
	Ports    []Port
	// Recalled: it is known from what was written in a pod's status, by whomever, and
	// not because this process promised it.
	Recalled bool
	// Claim is the decision that made a nomination; 0 where it was recalled. A later
	// decision has a higher one.
	Claim uint64
	// Made: room was made for the holder before its plan came. What the plan gives back
	// is held on as a nomination, until the holder runs or gives up.
	Made bool
}

// nomination is what is left of a plan's hold that is given back, where room was made.
func (h Hold) nomination() Hold {
	h.Reason, h.Made = Nomination, false
	return h
}

// Change is what a change of the ledger means to others.
type Change struct {
	// Freed are the nodes of which something is free by it.
	Freed []string
	// Renominated are the pods that have another nomination by it, or none any more, while
	// they still wait.
	Renominated []types.UID
}

// Ledger is all holds.
type Ledger struct {
	holds map[types.UID]Hold
	nodes map[string]*node
	count map[Reason]int
	made  int // how many holds were Made
	// nominated is how many nominations each holder has.
	nominated map[Holder]int
	// changed are the pods whose holds have changed since it was asked last.
	changed []types.UID
}

// node is what is held on a node: in all, and by holder.
type node struct {
	total  Taken
	holder map[Holder]*Taken
}

// Taken is what holds add up to.
type Taken struct {
	Pods    int
	Request resource.Vector
	Ports   []Port
}

// NewLedger makes an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{holds: map[types.UID]Hold{}, nodes: map[string]*node{}, count: map[Reason]int{}, nominated: map[Holder]int{}}
}

// Put adds a hold, in place of the one that its pod had.
func (l *Ledger) Put(h Hold) {
	l.Drop(h.For)
	l.changed = append(l.changed, h.For)
	n := l.nodes[h.Node]
	if n == nil {
		n = &node{total: Taken{Request: resource.Vector{}}, holder: map[Holder]*Taken{}}
		l.nodes[h.Node] = n
	}
	if n.holder[h.Holder] == nil {
		n.holder[h.Holder] = &Taken{Request: resource.Vector{}}
	}
	l.holds[h.For] = h
	l.count[h.Reason]++
	if h.Reason == Nomination {
		l.nominated[h.Holder]++
	}
	if h.Made {
		l.made++
	}
	n.total.add(h, 1)
	n.holder[h.Holder].add(h, 1)
}

// Drop ends the hold of a pod. It returns false where there was none.
func (l *Ledger) Drop(pod types.UID) bool {
	h, ok := l.holds[pod]
	if !ok {
		return false
	}
	delete(l.holds, pod)
	l.changed = append(l.changed, pod)
	l.count[h.Reason]--
	if h.Reason == Nomination {
		if l.nominated[h.Holder]--; l.nominated[h.Holder] == 0 {
			delete(l.nominated, h.Holder)
		}
	}
	if h.Made {
		l.made--
	}
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

// Follow takes in a plan of a holder: its holds take the place of the nominations of the
// pods that the plan was made for, those of pods that it leaves out included. If the holder
// had nominations, or what was left of them, room was made for it.
func (l *Ledger) Follow(holder Holder, pods []types.UID, plan []Hold) Change {
	made, priority := l.madeFor(holder)
	var c Change
	for _, pod := range pods {
		if h, ok := l.holds[pod]; ok && h.Holder == holder && h.Reason == Nomination {
			c = l.denominate(c, h)
		}
	}
	for _, h := range plan {
		h.Holder, h.Reason, h.Made, h.Priority = holder, Plan, made, priority
		l.Put(h)
	}
	c.Renominated = slices.DeleteFunc(c.Renominated, func(pod types.UID) bool { _, planned := l.holds[pod]; return planned })
	return c
}

// Denominate ends the nominations of pods that wait; those that have none are passed over.
func (l *Ledger) Denominate(pods ...types.UID) Change {
	var c Change
	for _, pod := range pods {
		if h, ok := l.holds[pod]; ok && h.Reason == Nomination {
			c = l.denominate(c, h)
		}
	}
	return c
}

func (l *Ledger) denominate(c Change, h Hold) Change {
	l.Drop(h.For)
	c.Freed, c.Renominated = append(c.Freed, h.Node), append(c.Renominated, h.For)
	return c
}

// madeFor reports whether room was made for a holder, and at which priority.
func (l *Ledger) madeFor(holder Holder) (bool, int32) {
	if l.count[Nomination]+l.made == 0 {
		return false, 0
	}
	for _, h := range l.holds {
		if h.Holder == holder && (h.Reason == Nomination || h.Made) {
			return true, h.Priority
		}
	}
	return false, 0
}

// Use takes in that a pod is counted on a node from now on. What was held for it elsewhere
// is free; so it is where it was held, but to nobody's use: the pod has it. Room that was
// made stays nominated to the pod in case that it gives back its place.
func (l *Ledger) Use(pod types.UID, nodeName string) Change {
	h, ok := l.holds[pod]
	switch {
	case !ok:
	case h.Node != nodeName:
		l.Drop(pod)
		return Change{Freed: []string{h.Node}}
	case h.Reason == Plan && h.Made:
		l.Put(h.nomination())
	case h.Reason == Plan:
		l.Drop(pod)
	case h.Reason == Nomination:
		h.Claim = 0 // what is done to make room here is not needed any more
		l.Put(h)
	}
	return Change{}
}

// GiveBack ends the places of pods in a plan. Room that was made stays nominated to them.
func (l *Ledger) GiveBack(pods ...types.UID) Change {
	var c Change
	for _, pod := range pods {
		h, ok := l.holds[pod]
		if !ok || h.Reason != Plan {
			continue
		}
		l.Drop(pod)
		if h.Made {
			l.Put(h.nomination())
			c.Renominated = append(c.Renominated, pod)
		} else {
			c.Freed = append(c.Freed, h.Node)
		}
	}
	return c
}

// Changed returns the pods whose holds have changed since it was called last, some of them
// more than once.
func (l *Ledger) Changed() []types.UID {
	changed := l.changed
	l.changed = nil
	return changed
}

// Len is the number of holds.
func (l *Ledger) Len() int { return len(l.holds) }

// Count is the number of holds for a reason.
func (l *Ledger) Count(r Reason) int { return l.count[r] }

// Nominated reports whether a holder has nominations.
func (l *Ledger) Nominated(holder Holder) bool { return l.nominated[holder] > 0 }

// Nominations lists the pods that have nominations, by holder and then by UID.
func (l *Ledger) Nominations() map[Holder][]types.UID {
	list := make(map[Holder][]types.UID, len(l.nominated))
	for uid, h := range l.holds {
		if h.Reason == Nomination {
			list[h.Holder] = append(list[h.Holder], uid)
		}
	}
	for _, pods := range list {
		slices.Sort(pods)
	}
	return list
}

// Hold returns the hold of a pod.
func (l *Ledger) Hold(pod types.UID) (Hold, bool) {
	h, ok := l.holds[pod]
	return h, ok
}

// Holders lists who holds something for a reason at less than a priority.
func (l *Ledger) Holders(reason Reason, below int32) []Holder {
	found := map[Holder]bool{}
	for _, h := range l.holds {
		if h.Reason == reason && h.Priority < below {
			found[h.Holder] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), Holder.Compare)
}

// On lists who holds something on a node.
func (l *Ledger) On(nodeName string) []Holder {
	n := l.nodes[nodeName]
	if n == nil {
		return nil
	}
	return slices.SortedFunc(maps.Keys(n.holder), Holder.Compare)
}

// Of lists what a holder holds for a reason, by the UID of the pods.
func (l *Ledger) Of(holder Holder, reason Reason) []Hold {
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
func (l *Ledger) Others(nodeName string, there iter.Seq[types.UID], holders ...Holder) (Taken, bool) {
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
