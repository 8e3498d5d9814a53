package reservationstate

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// maxOwners is how many owners a status lists.
const maxOwners = 64

// Consumer is a pod that says it uses a placement of the Reservation.
type Consumer struct {
	Namespace, Name string
	UID             types.UID
	Created         time.Time
	// Index is the placement, and Node where the pod is bound; empty if it is not.
	Index int32
	Node  string
	// Requests are the pod's requests.
	Requests resource.Vector
	// Ended: the pod has terminated, and uses nothing.
	Ended bool
}

// Node is the state of a node.
type Node int

const (
	// NodeThere: it takes pods.
	NodeThere Node = iota
	// NodeCordoned: it takes no new pods for now.
	NodeCordoned
	// NodeNotReady: it is cut off or dead, and takes no pods until it is back.
	NodeNotReady
	// NodeGone: it does not exist.
	NodeGone
)

// Observed is what a status follows from, besides the Reservation itself.
type Observed struct {
	// Consumers are the pods with an allocation of this Reservation, in any order.
	Consumers []Consumer
	// Nodes are the nodes of the placements. A missing one is NodeThere.
	Nodes map[string]Node
}

// Next returns the status that a Reservation should have, and when to compute it again without an event; the zero time
// for never.
func Next(r *v1alpha1.Reservation, seen Observed, now time.Time) (v1alpha1.ReservationStatus, time.Time) {
	if Ended(r.Status.Phase) {
		status := *r.Status.DeepCopy()
		if status.EndTime == nil {
			status.EndTime = times.Stored(now)
		}
		return status, time.Time{}
	}
	l := snapshotOf(r, seen)
	status := l.status(r)
	var again time.Time
	switch {
	case r.DeletionTimestamp != nil:
		status.Phase = v1alpha1.ReservationFailed
	case IsSingleUse(r) && l.spent == Replicas(r):
		status.Phase = v1alpha1.ReservationSucceeded
	case expired(r, now):
		status.Phase = v1alpha1.ReservationFailed
	case len(l.placements) >= Replicas(r):
		status.Phase, again = v1alpha1.ReservationAvailable, Expiry(r)
	default:
		status.Phase, again = v1alpha1.ReservationPending, Expiry(r)
		for _, at := range []time.Time{Start(r), untriedAt(r)} {
			if now.Before(at) && (again.IsZero() || at.Before(again)) {
				again = at
			}
		}
	}
	if Ended(status.Phase) {
		status.EndTime = times.Stored(now)
	}
	status.Conditions = slices.Clone(r.Status.Conditions)
	ready := l.ready(r, status, now)
	ready.LastTransitionTime, ready.ObservedGeneration = *times.Stored(now), r.Generation
	meta.SetStatusCondition(&status.Conditions, ready)
	return status, again
}

// snapshot is the current state of a Reservation.
type snapshot struct {
	// placements are the remaining placements, and consumers the pods that use them, the oldest first.
	placements []v1alpha1.ReservationPlacement
	consumers  []Consumer
	// spent is how many single-use placements were used.
	spent int
	// lost are the nodes of placements that are no longer held; cordoned and notReady are nodes of held placements that
	// take no pods.
	lost, cordoned, notReady []string
}

// snapshotOf compares what a Reservation records with what exists.
func snapshotOf(r *v1alpha1.Reservation, seen Observed) snapshot {
	var l snapshot
	for _, p := range r.Status.Placements {
		var users []Consumer
		asked := resource.Vector{}
		for _, c := range seen.Consumers {
			if c.Index != p.Index || c.Node != p.NodeName || !Uses(r, c.Namespace, c.UID, c.Index) {
				continue
			}
			p.Spent = p.Spent || IsSingleUse(r)
			if !c.Ended {
				users = append(users, c)
				asked.Add(c.Requests, 1)
			}
		}
		p.Allocated = amountOrNil(used(resource.FromList(p.Allocatable), asked))
		if l.addPlacement(p, seen.Nodes[p.NodeName]) {
			l.consumers = append(l.consumers, users...)
		}
	}
	slices.SortFunc(l.consumers, compareConsumers)
	return l
}

// addPlacement adds a placement, unless its node is gone. A used single-use placement is kept: it needs no replacement.
func (l *snapshot) addPlacement(p v1alpha1.ReservationPlacement, node Node) bool {
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

// status returns the computed part of the status: placements, amounts and owners.
func (l *snapshot) status(r *v1alpha1.Reservation) v1alpha1.ReservationStatus {
	status := v1alpha1.ReservationStatus{Placements: l.placements, OwnerCount: int32(len(l.consumers))}
	allocatable, allocated := resource.Vector{}, resource.Vector{}
	for _, p := range l.placements {
		allocatable.Add(resource.FromList(p.Allocatable), 1)
		allocated.Add(resource.FromList(p.Allocated), 1)
	}
	status.Allocatable, status.Allocated = amountOrNil(allocatable), amountOrNil(allocated)
	if Replicas(r) == 1 && len(l.placements) == 1 {
		status.NodeName = l.placements[0].NodeName
	}
	for _, c := range l.consumers[:min(len(l.consumers), maxOwners)] {
		status.CurrentOwners = append(status.CurrentOwners,
			v1alpha1.ReservationConsumer{Namespace: c.Namespace, Name: c.Name, UID: c.UID, Index: c.Index})
	}
	return status
}

// compareConsumers orders by: 1. creation, the oldest first; 2. namespace; 3. name; 4. UID.
func compareConsumers(a, b Consumer) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.UID, b.UID))
}

// used returns how much of a placement is used by pods that together ask for so much.
func used(allocatable, asked resource.Vector) resource.Vector {
	amount := resource.Vector{}
	for name, has := range allocatable {
		amount[name] = min(has, asked[name])
	}
	return amount
}

// amountOrNil returns an amount as the API writes it; nil for nothing.
func amountOrNil(v resource.Vector) v1.ResourceList {
	if v.Zero() {
		return nil
	}
	return v.List()
}
