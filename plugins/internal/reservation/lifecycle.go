package reservation

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// listed is how many owners a status lists.
const listed = 64

// Consumer is a pod that says that it uses a placement of the Reservation in question.
type Consumer struct {
	Namespace, Name string
	UID             types.UID
	Created         time.Time
	// Index is the placement, and Node where the pod is bound; empty if it is not.
	Index int32
	Node  string
	// Requests are what the pod asks for.
	Requests resource.Vector
	// Ended: the pod has come to its end, and uses nothing any more.
	Ended bool
}

// Node is the state of a node.
type Node int

const (
	// NodeThere: it takes pods.
	NodeThere Node = iota
	// NodeCordoned: it takes no more pods for now.
	NodeCordoned
	// NodeNotReady: it is cut off or has died, and takes no more pods until it is back.
	NodeNotReady
	// NodeGone: it does not exist.
	NodeGone
)

// Seen is what a status follows from, besides the Reservation itself.
type Seen struct {
	// Consumers are the pods with an allocation of this very Reservation, in any order.
	Consumers []Consumer
	// Nodes are the nodes of the placements. One that is missing is NodeThere.
	Nodes map[string]Node
}

// Next returns the status that a Reservation should have, and when to look again even if nothing
// happens; the zero time for never.
func Next(r *v1alpha1.Reservation, seen Seen, now time.Time) (v1alpha1.ReservationStatus, time.Time) {
	if Ended(r.Status.Phase) {
		status := *r.Status.DeepCopy()
		if status.EndTime == nil {
			status.EndTime = seconds(now)
		}
		return status, time.Time{}
	}
	l := look(r, seen)
	status := l.status(r)
	var again time.Time
	switch {
	case r.DeletionTimestamp != nil:
		status.Phase = v1alpha1.ReservationFailed
	case Once(r) && l.spent == Replicas(r):
		status.Phase = v1alpha1.ReservationSucceeded
	case expired(r, now):
		status.Phase = v1alpha1.ReservationFailed
	case len(l.placements) >= Replicas(r):
		status.Phase, again = v1alpha1.ReservationAvailable, Expiry(r)
	default:
		status.Phase, again = v1alpha1.ReservationPending, Expiry(r)
		for _, at := range []time.Time{Start(r), unheardOf(r)} {
			if now.Before(at) && (again.IsZero() || at.Before(again)) {
				again = at
			}
		}
	}
	if Ended(status.Phase) {
		status.EndTime = seconds(now)
	}
	status.Conditions = slices.Clone(r.Status.Conditions)
	ready := l.ready(r, status, now)
	ready.LastTransitionTime, ready.ObservedGeneration = *seconds(now), r.Generation
	meta.SetStatusCondition(&status.Conditions, ready)
	return status, again
}

// seconds returns a time as the API stores it.
func seconds(at time.Time) *metav1.Time { return new(metav1.NewTime(at).Rfc3339Copy()) }

// standing is what there is of a Reservation.
type standing struct {
	// placements are the ones that are left, and consumers the pods that use them, the oldest
	// first.
	placements []v1alpha1.ReservationPlacement
	consumers  []Consumer
	// spent is how many of the placements were used, if each may be used once.
	spent int
	// lost are the nodes of placements that were held until now and are not any more; cordoned and
	// notReady are nodes of placements that are held and take no pods.
	lost, cordoned, notReady []string
}

// look compares what a Reservation has with what is there.
func look(r *v1alpha1.Reservation, seen Seen) standing {
	var l standing
	for _, p := range r.Status.Placements {
		var users []Consumer
		asked := resource.Vector{}
		for _, c := range seen.Consumers {
			if c.Index != p.Index || c.Node != p.NodeName {
				continue
			}
			p.Spent = p.Spent || Once(r)
			if !c.Ended {
				users = append(users, c)
				asked.Add(c.Requests, 1)
			}
		}
		p.Allocated = list(used(resource.FromList(p.Allocatable), asked))
		if l.keep(p, seen.Nodes[p.NodeName]) {
			l.consumers = append(l.consumers, users...)
		}
	}
	slices.SortFunc(l.consumers, older)
	return l
}

// keep adds a placement, unless its node is gone. One that was used and is not to be used again is kept:
// no other place is needed for it.
func (l *standing) keep(p v1alpha1.ReservationPlacement, node Node) bool {
	switch {
	case p.Spent:
		l.spent++
	case node == NodeGone:
		l.lost = append(l.lost, p.NodeName)
		return false
	case node == NodeCordoned:
		l.cordoned = append(l.cordoned, p.NodeName)
	case node == NodeNotReady:
		l.notReady = append(l.notReady, p.NodeName)
	}
	l.placements = append(l.placements, p)
	return true
}

// status returns the part of the status that is counted: placements, amounts and owners.
func (l *standing) status(r *v1alpha1.Reservation) v1alpha1.ReservationStatus {
	status := v1alpha1.ReservationStatus{Placements: l.placements, OwnerCount: int32(len(l.consumers))}
	allocatable, allocated := resource.Vector{}, resource.Vector{}
	for _, p := range l.placements {
		allocatable.Add(resource.FromList(p.Allocatable), 1)
		allocated.Add(resource.FromList(p.Allocated), 1)
	}
	status.Allocatable, status.Allocated = list(allocatable), list(allocated)
	if Replicas(r) == 1 && len(l.placements) == 1 {
		status.NodeName = l.placements[0].NodeName
	}
	for _, c := range l.consumers[:min(len(l.consumers), listed)] {
		status.CurrentOwners = append(status.CurrentOwners, v1alpha1.ReservationConsumer{Namespace: c.Namespace, Name: c.Name, UID: c.UID, Index: c.Index})
	}
	return status
}

// older orders by: 1. creation, the oldest first; 2. namespace; 3. name; 4. UID.
func older(a, b Consumer) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}

// used returns how much of a placement is used by pods that ask for this much together.
func used(allocatable, asked resource.Vector) resource.Vector {
	amount := resource.Vector{}
	for name, has := range allocatable {
		amount[name] = min(has, asked[name])
	}
	return amount
}

// list returns an amount as the API writes it; nil for nothing.
func list(v resource.Vector) v1.ResourceList {
	if v.Zero() {
		return nil
	}
	return v.List()
}
