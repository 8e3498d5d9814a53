package hold

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// ErrReason is the reason of nodes that have room, but hold it for others.
const ErrReason = "node(s) with capacity held for others"

// Port is a host port that a pod binds.
type Port struct {
	IP, Protocol string
	Number       int32
}

// Reason is why capacity is held.
type Reason string

// Reasons.
const (
	// Plan: a gang's plan gives the node to a member that is not bound yet.
	Plan Reason = "plan"
	// Nomination: pods were evicted to make room for this one.
	Nomination Reason = "nomination"
	// Reservation: the capacity was reserved before its pods came, or a pod has taken it of such a hold.
	Reservation Reason = "reservation"
)

// Reasons lists all reasons.
func Reasons() []Reason { return []Reason{Plan, Nomination, Reservation} }

// Holder is what capacity is held for: a group of gangs of a profile, or one of its pods. All profiles of a process
// share a ledger.
type Holder struct {
	Profile string
	// Group is the name of a group of gangs, or what SinglePod returns.
	Group string
}

// SinglePod returns the group of a pod that is placed alone. No group of gangs has such a name.
func SinglePod(pod types.UID) string { return podPrefix + string(pod) }

// IsSinglePod reports whether the holder is a pod that is placed alone.
func (h Holder) IsSinglePod() bool { return strings.HasPrefix(h.Group, podPrefix) }

const podPrefix = "pod:"

// IsNone reports whether the holder is the zero value, no holder.
func (h Holder) IsNone() bool { return h == Holder{} }

// Compare orders holders by profile and group.
func (h Holder) Compare(other Holder) int {
	return cmp.Or(cmp.Compare(h.Profile, other.Profile), cmp.Compare(h.Group, other.Group))
}

// String returns profile/group: the name of the job of the holder, and its name in logs.
func (h Holder) String() string { return h.Profile + "/" + h.Group }

// ID identifies a hold. The hold of a pod has IDOf the pod; a hold for no pod yet has an ID that no pod has, such as
// the UID of the object that asks for it.
type ID string

// IDOf returns the ID of a pod's hold; a pod has at most one.
func IDOf(pod types.UID) ID { return ID(pod) }

// Hold is capacity on a node that only its holder may use.
type Hold struct {
	// ID identifies the hold. If it is for a pod, Put sets it.
	ID ID
	// For is the pod that will take the place of the hold; empty if pods may take parts of it.
	For types.UID
	// From is the hold of which the pod takes a part: as much of its request as is left there. It returns the part with
	// its own hold. Empty for none.
	From ID
	// Holder is the holder that may use the capacity.
	Holder Holder
	Node   string
	Reason Reason
	// Priority is that of the pods that the capacity is held for.
	Priority int32
	Request  resource.Vector
	Ports    []Port
	// Devices are the ResourceClaims of its pod as they would be allocated. They must not be changed.
	Devices []*resourceapi.ResourceClaim
	// Pods is how many pods it has places for. If it is for a pod, Put sets it to one.
	Pods int
	// Recalled: it is known only from a pod's status, whichever component wrote that.
	Recalled bool
	// Claim is the decision that made a nomination; 0 if it was recalled. A later decision has a higher one.
	Claim uint64
	// WasNominated: capacity was freed for the holder before its plan came. A released place stays held as a nomination,
	// until the holder runs or gives up.
	WasNominated bool
}

// nomination returns the nomination that remains when a plan's hold is released.
func (h Hold) nomination() Hold {
	h.Reason, h.WasNominated = Nomination, false
	return h
}

// Change is the effect of a change of the ledger on nodes and pending pods.
type Change struct {
	// Freed are the nodes on which it freed something.
	Freed []string
	// Renominated are the pending pods whose nomination it changed or ended.
	Renominated []types.UID
}

// Ledger is all holds.
type Ledger struct {
	holds map[ID]entry
	// parts are the holds that have a part of another hold, by the ID of that.
	parts map[ID]map[ID]bool
	// nodes has what is held on each node.
	nodes   map[string]*onNode
	maxHeld maxHeld
	count   map[Reason]int
	// holders counts the holds of each holder by reason.
	holders map[Holder]map[Reason]int
	// devices are the holds that have devices.
	devices map[ID]bool
	// changed are the pods whose holds have changed since Changed was last called.
	changed []types.UID
}

// entry is a hold and its parts.
type entry struct {
	Hold
	// left is the part that pods have not taken; it counts on the node. part is what this hold has taken of the hold in
	// From. What was taken and what is left add up to the whole.
	left, part Taken
}

// Taken is a sum of holds.
type Taken struct {
	Pods    int
	Request resource.Vector
	Ports   []Port
}

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{holds: map[ID]entry{}, parts: map[ID]map[ID]bool{}, nodes: map[string]*onNode{},
		count: map[Reason]int{}, holders: map[Holder]map[Reason]int{}, devices: map[ID]bool{}}
}

// Put adds a hold, in place of the one with its ID, or of its pod. Parts of the old hold become parts of the new one,
// if it is on the same node and as far as it suffices. An old hold on another node is freed.
func (l *Ledger) Put(h Hold) Change {
	if h.For != "" {
		h.ID = IDOf(h.For)
		if h.Reason != Reservation {
			h.Pods = 1
		}
	}
	old, takers := l.holds[h.ID], l.takers(h.ID)
	l.Drop(h.ID)
	e := entry{Hold: h, left: Taken{Pods: h.Pods, Request: h.Request, Ports: h.Ports}}
	if e.part = l.takePart(h); e.part.zero() {
		e.From = ""
	}
	l.holds[h.ID] = e
	l.recordPart(e, true)
	l.countHold(h, 1)
	on := l.nodes[h.Node]
	if on == nil {
		on = &onNode{shares: map[Holder]*share{}}
		l.nodes[h.Node] = on
	}
	if on.shares[h.Holder] == nil {
		on.shares[h.Holder] = &share{Taken: Taken{Request: resource.Vector{}}}
	}
	on.shares[h.Holder].holds++
	if h.For != "" {
		on.ofPods++
	}
	l.addToShare(on, h.Holder, e.left, 1)
	for _, taker := range takers {
		l.Put(taker)
		if taker.Reason == Reservation {
			l.keepPart(taker.ID)
		}
	}
	if old.Node == "" || old.Node == h.Node {
		return Change{}
	}
	return Change{Freed: []string{old.Node}}
}

// Drop ends a hold, and returns its part to the other hold. Plans' places and nominations that had a part of it keep
// all that they have; the part of a pod on the node ends with it. It returns false if there is no such hold.
func (l *Ledger) Drop(id ID) bool {
	e, ok := l.holds[id]
	if !ok {
		return false
	}
	for _, taker := range l.takers(id) {
		taking := l.holds[taker.ID]
		l.recordPart(taking, false)
		taking.From, taking.part = "", Taken{}
		l.holds[taker.ID] = taking
		if taker.Reason == Reservation {
			l.Drop(taker.ID)
		}
	}
	delete(l.holds, id)
	l.recordPart(e, false)
	l.countHold(e.Hold, -1)
	on := l.nodes[e.Node]
	l.addToShare(on, e.Holder, e.left, -1)
	if e.For != "" {
		on.ofPods--
	}
	if of := on.shares[e.Holder]; of.holds == 1 {
		delete(on.shares, e.Holder)
	} else {
		of.holds--
	}
	if len(on.shares) == 0 {
		delete(l.nodes, e.Node)
	}
	if from, ok := l.holds[e.From]; ok && e.From != "" {
		l.changeLeft(from, e.part, 1)
	}
	return true
}

// countHold counts a hold that is added, or with -1 removed.
func (l *Ledger) countHold(h Hold, by int) {
	if h.For != "" {
		l.changed = append(l.changed, h.For)
	}
	l.count[h.Reason] += by
	of := l.holders[h.Holder]
	if of == nil {
		of = map[Reason]int{}
		l.holders[h.Holder] = of
	}
	if of[h.Reason] += by; of[h.Reason] == 0 {
		if delete(of, h.Reason); len(of) == 0 {
			delete(l.holders, h.Holder)
		}
	}
	switch {
	case len(h.Devices) == 0:
	case by > 0:
		l.devices[h.ID] = true
	default:
		delete(l.devices, h.ID)
	}
}

func (t *Taken) add(other Taken, by int) {
	t.Pods += by * other.Pods
	t.Request.Add(other.Request, int64(by))
	if by > 0 {
		t.Ports = append(t.Ports, other.Ports...)
		return
	}
	for _, gone := range other.Ports {
		if i := slices.Index(t.Ports, gone); i >= 0 {
			t.Ports = slices.Concat(t.Ports[:i], t.Ports[i+1:])
		}
	}
}

// zero reports whether it is empty.
func (t Taken) zero() bool { return t.Pods == 0 && len(t.Ports) == 0 && t.Request.Zero() }

// FollowPlan records a plan of a holder: its holds replace the nominations of the pods that the plan was made for,
// including pods that it leaves out. If the holder had nominations, the plan's holds are WasNominated. A pod that has a
// part of a hold on its planned node keeps it.
func (l *Ledger) FollowPlan(holder Holder, pods []types.UID, plan []Hold) Change {
	made, priority := l.nominatedFor(holder)
	from := l.takenFrom(plan)
	var c Change
	for _, pod := range pods {
		if h, ok := l.Hold(IDOf(pod)); ok && h.Holder == holder && h.Reason == Nomination {
			c = l.dropNomination(c, h)
		}
	}
	for i, h := range plan {
		h.Holder, h.Reason, h.WasNominated, h.Priority, h.From = holder, Plan, made, priority, from[i]
		l.Put(h)
	}
	c.Renominated = slices.DeleteFunc(c.Renominated,
		func(pod types.UID) bool { _, planned := l.holds[IDOf(pod)]; return planned })
	return c
}

// DropNominations ends the nominations of pending pods; it skips pods without one.
func (l *Ledger) DropNominations(pods ...types.UID) Change {
	var c Change
	for _, pod := range pods {
		if h, ok := l.Hold(IDOf(pod)); ok && h.Reason == Nomination {
			c = l.dropNomination(c, h)
		}
	}
	return c
}

func (l *Ledger) dropNomination(c Change, h Hold) Change {
	l.Drop(h.ID)
	c.Freed, c.Renominated = append(c.Freed, h.Node), append(c.Renominated, h.For)
	return c
}

// nominatedFor reports whether capacity was freed for a holder, and at which priority.
func (l *Ledger) nominatedFor(holder Holder) (bool, int32) {
	if of := l.holders[holder]; of[Nomination]+of[Plan] == 0 {
		return false, 0
	}
	for _, h := range l.holds {
		if h.Holder == holder && (h.Reason == Nomination || h.WasNominated) {
			return true, h.Priority
		}
	}
	return false, 0
}

// PodAssumed records that a pod is counted on a node. What was held for it on another node is freed. A plan's place on
// this node ends too, but frees nothing: the pod uses it. Capacity that was freed stays nominated to the pod in case it
// leaves, and what it has taken of a hold stays its part.
func (l *Ledger) PodAssumed(pod types.UID, nodeName string) Change {
	h, ok := l.Hold(IDOf(pod))
	switch {
	case !ok:
	case h.Node != nodeName:
		l.Drop(h.ID)
		return Change{Freed: []string{h.Node}}
	case h.Reason == Plan && h.WasNominated:
		l.Put(h.nomination())
	case h.Reason == Plan:
		l.keepPart(h.ID)
	case h.Reason == Nomination:
		h.Claim = 0 // evictions on this node are no longer needed
		l.Put(h)
	}
	return Change{}
}

// PodBound records that a pod is bound and needs no nomination.
func (l *Ledger) PodBound(pod types.UID, nodeName string) Change {
	h, ok := l.Hold(IDOf(pod))
	switch {
	case !ok || h.Reason != Nomination:
	case h.Node != nodeName:
		l.Drop(h.ID)
		return Change{Freed: []string{h.Node}}
	default:
		l.keepPart(h.ID)
	}
	return Change{}
}

// Release ends the places of pods in a plan. Capacity that was freed for them stays nominated.
func (l *Ledger) Release(pods ...types.UID) Change {
	var c Change
	for _, pod := range pods {
		h, ok := l.Hold(IDOf(pod))
		if !ok || h.Reason != Plan {
			continue
		}
		if h.WasNominated {
			l.Put(h.nomination())
			c.Renominated = append(c.Renominated, pod)
		} else {
			l.Drop(h.ID)
			c.Freed = append(c.Freed, h.Node)
		}
	}
	return c
}

// Changed returns the pods whose holds have changed since the last call, possibly with duplicates.
func (l *Ledger) Changed() []types.UID {
	changed := l.changed
	l.changed = nil
	return changed
}

// Len returns the number of holds.
func (l *Ledger) Len() int { return len(l.holds) }

// Count returns the number of holds for a reason.
func (l *Ledger) Count(r Reason) int { return l.count[r] }

// Nominated reports whether a holder has nominations.
func (l *Ledger) Nominated(holder Holder) bool { return l.holders[holder][Nomination] > 0 }

// Nominations lists the pods that have nominations, by holder and then by UID.
func (l *Ledger) Nominations() map[Holder][]types.UID {
	list := map[Holder][]types.UID{}
	for _, h := range l.holds {
		if h.Reason == Nomination {
			list[h.Holder] = append(list[h.Holder], h.For)
		}
	}
	for _, pods := range list {
		slices.Sort(pods)
	}
	return list
}

// Hold returns a whole hold, whatever pods have taken of it.
func (l *Ledger) Hold(id ID) (Hold, bool) {
	e, ok := l.holds[id]
	return e.Hold, ok
}

// Holders lists the holders with holds for a reason below a priority.
func (l *Ledger) Holders(reason Reason, below int32) []Holder {
	found := map[Holder]bool{}
	for _, h := range l.holds {
		if h.Reason == reason && h.Priority < below {
			found[h.Holder] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), Holder.Compare)
}

// Holds reports whether a holder has any hold.
func (l *Ledger) Holds(holder Holder) bool { return len(l.holders[holder]) > 0 }

// Devices lists the holds with devices of other holders, in no order.
func (l *Ledger) Devices(holders ...Holder) []Hold {
	var found []Hold
	for id := range l.devices {
		if h := l.holds[id].Hold; !slices.Contains(holders, h.Holder) {
			found = append(found, h)
		}
	}
	return found
}

// HoldsOf lists the holds of a holder, by ID.
func (l *Ledger) HoldsOf(holder Holder) []Hold {
	var found []Hold
	for _, h := range l.holds {
		if h.Holder == holder {
			found = append(found, h.Hold)
		}
	}
	slices.SortFunc(found, func(a, b Hold) int { return cmp.Compare(a.ID, b.ID) })
	return found
}
