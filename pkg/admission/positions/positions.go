// Package positions keeps where the members of gangs stand in the scheduling queue.
//
// The queue's heap must not see a key change while a pod is in it. A member's
// position depends on its gang, which does change, so the position is frozen at
// the moment the member is let into the queue, and read from here by the
// queue-sort plugin. One Order serves all profiles of a process, as one
// queue-sort plugin does.
package positions

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// position is what a member is sorted by.
type position struct {
	turns.Rank
	// place is where the member stands in its plan, from 1; 0 where it is in none.
	place int
}

// Order is the frozen positions. It is safe for concurrent use.
type Order struct {
	positions sync.Map // types.UID -> position
	places    sync.Map // types.UID -> int
	last      atomic.Int64
}

// Plan sets the order in which a plan places members. It counts for those that enter the
// queue from now on.
func (o *Order) Plan(members []types.UID) {
	first := o.last.Add(int64(len(members))) - int64(len(members))
	for i, uid := range members {
		o.places.Store(uid, int(first)+i+1)
	}
}

// ForgetPlan takes a member out of its plan.
func (o *Order) ForgetPlan(uid types.UID) { o.places.Delete(uid) }

// Freeze fixes the position of a member that is about to enter the queue.
func (o *Order) Freeze(uid types.UID, at turns.Rank) {
	p := position{Rank: at}
	if place, ok := o.places.Load(uid); ok {
		p.place = place.(int)
	}
	o.positions.Store(uid, p)
}

// Forget drops the position and the place of a member that no queue holds now.
func (o *Order) Forget(uid types.UID) {
	o.positions.Delete(uid)
	o.places.Delete(uid)
}

// Entry is what the queue holds: a pod, or a pod group of kube-scheduler's own.
type Entry struct {
	UID      types.UID
	Priority int32
	// Queued is when it entered the queue.
	Queued time.Time
}

// Less orders by: 1. rank: a gang's, and for all others priority, and the entry into the queue; 2. the order of the
// gang's plan, since what one member wishes of others may hold only once those are there; members in no plan come last;
// 3. UID. Among entries in no gang this is what kube-scheduler's PrioritySort does.
func (o *Order) Less(a, b Entry) bool {
	x, y := o.position(a), o.position(b)
	return cmp.Or(x.Rank.Compare(y.Rank), comparePlaces(x.place, y.place), cmp.Compare(a.UID, b.UID)) < 0
}

func comparePlaces(a, b int) int {
	if a == 0 || b == 0 {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

func (o *Order) position(e Entry) position {
	p := position{Rank: turns.Rank{Created: e.Queued}}
	if frozen, ok := o.positions.Load(e.UID); ok {
		p = frozen.(position)
	}
	p.Priority = e.Priority
	return p
}

// New makes an empty order.
func New() *Order { return &Order{} }
