package queueing

import (
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Vector is an amount of each resource.
type Vector = resource.Vector

// Queue is a queue as its owner describes it.
type Queue struct {
	Name, Parent string
	// Weight is from 1 to 2^31-1.
	Weight int64
	// Priority decides which queue is served first, whatever the shares: high before low.
	Priority int32
	// Deserved, Guarantee and Capability are as in [share.Queue].
	Deserved, Guarantee, Capability Vector
	// Closed: nothing more is admitted.
	Closed bool
	// Fault is what of its description cannot be used; empty for nothing. Until that is corrected it is as if it
	// were closed.
	Fault string
	// NotReclaimable: other queues may not reclaim what it has.
	NotReclaimable bool
	// MinRuntime is how long its gangs are left alone once they run; nil if it does not say.
	MinRuntime *time.Duration
}

// sameLimits reports whether no other jobs fit into a queue than into another version of it: a weight, a priority, or
// what it deserves changes the shares.
func (q *Queue) sameLimits(other Queue) bool {
	other.Weight, other.Priority, other.Deserved = q.Weight, q.Priority, q.Deserved
	return reflect.DeepEqual(*q, other)
}

// shut reports whether nothing more is admitted to it.
func (q *Queue) shut() bool { return q.Closed || q.Fault != "" }

// Job is pods that start together, or one pod.
type Job struct {
	// Name is unique. It ends every order. Title is what users know it by.
	Name, Title string
	Queue       string
	// Pod is the pod that comes to the gate, and Pods are all that would be placed. Together: these are the minimum of
	// gangs, which another plugin brings to the gate.
	Pod      string
	Pods     []string
	Together bool
	// Gang is the gang whose usage counts as the job's own, for members that come later. Empty for none.
	Gang string
	// Priority is high before low.
	Priority int32
	Created  time.Time
	// Ready: its minimum runs; what waits is beyond it.
	Ready bool
	// NeverPreempts: no pod makes way for it. It waits until its queue keeps all limits by itself.
	NeverPreempts bool
	// Begun: part of its minimum is bound already. It has its turn before all others, whatever the limits of its
	// queues.
	Begun bool
	// Holders are those for which pods may be evicted so that it is placed. They have what is promised to it until the
	// evicted pods have ended.
	Holders []hold.Holder
	// Options are what it may ask for if it is admitted, at least one, and the first that its queues have room for: the
	// same in several pools of nodes. Queue is the one by which it is ordered.
	Options []Needs
	// Parts is what a part of it asks for, with each of Options, if parts of it may be placed one by one: its queues need
	// no more room than that. Nil if it is placed as a whole.
	Parts []Needs
}

// Usage is what a pod, or anything else that the caller counts under a name, asks for.
type Usage struct {
	Queue string
	// Job is what it waits with, and Gang is as in [Job].
	Job, Gang string
	// Priority is that of the pod; high may preempt low in the same queue.
	Priority int32
	Amount   Vector
	// Or is what it may have instead while it waits, in the order of [Job]. All of it is asked for.
	Or []Vector
	// Runs: it has its node. Otherwise it waits.
	Runs bool
	// Demand is how far what it asks for counts while it waits.
	Demand DemandScope
	// Promised: it waits for a node on which other pods made way for it. It counts as used. It is
	// not Held then.
	Promised bool
	// Held: its place is held for it until others of its job have theirs. It counts as used, and its job no
	// longer asks for it.
	Held bool
	// refused and hopeless are what was found about it in its cycle, until that is over.
	refused, hopeless bool
}

// DemandScope is how far what a pod asks for counts in the shares of queues.
type DemandScope int

// Demands.
const (
	// Full: it is to have its share.
	Full DemandScope = iota
	// Idle: it did not fit in its turn. Its share stays its queue's by right, and is lent.
	Idle
	// Hopeless: it would not fit on an empty cluster. There is no share for it.
	Hopeless
)

// Equal reports whether both ask for the same in the same way.
func (u Usage) Equal(other Usage) bool {
	return u.Queue == other.Queue && u.Job == other.Job && u.Gang == other.Gang && u.Priority == other.Priority &&
		u.Runs == other.Runs && u.Demand == other.Demand && u.Promised == other.Promised && u.Held == other.Held &&
		maps.Equal(u.Amount, other.Amount) &&
		slices.EqualFunc(u.Or, other.Or, func(a, b Vector) bool { return maps.Equal(a, b) })
}

// placed reports whether it has its place: its job no longer asks for it.
func (u Usage) placed() bool { return u.Runs || u.Held }

// Option returns what it asks for if its job takes the option with this index.
func (u Usage) Option(at int) Vector {
	if at == 0 || len(u.Or) == 0 {
		return u.Amount
	}
	return u.Or[min(at, len(u.Or))-1]
}
