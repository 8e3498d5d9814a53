package workload

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Target is what a fault hits.
type Target string

// The targets. Where there are replicas, the leader is hit.
const (
	Scheduler   Target = "scheduler"
	Controller  Target = "controller"
	Descheduler Target = "descheduler"
	APIServer   Target = "API server"
	Node        Target = "node"
)

// Blow is how it is hit.
type Blow string

// The blows. A process that is stopped goes on where it was; one that is killed is started again. A
// node that is deleted comes back empty, one that is renewed with the pods that it had.
const (
	Kill   Blow = "killed"
	Stop   Blow = "stopped"
	Remove Blow = "deleted"
	Renew  Blow = "renewed"
	Cordon Blow = "cordoned"
)

// Moment is when a fault hits, once its time has come.
type Moment string

// The moments: at once, or when the first member of a gang was bound, or the first of a gang evicted, or a pod evicted
// so that it moves, or its target reserved.
const (
	AtOnce          Moment = ""
	AtFirstBind     Moment = " at a first bind"
	AtFirstEviction Moment = " at a first eviction"
	AtMove          Moment = " at a move"
	AtTarget        Moment = " at a reserved target"
)

// Fault is one fault.
type Fault struct {
	Target Target
	Blow   Blow
	When   Moment
	// Calm is how long all is well before it: since the last fault was over.
	Calm time.Duration
	// Lasts is how long until it is mended.
	Lasts time.Duration
	// Node is the number of the node.
	Node int
}

// LeaseDuration is the lease duration of the scheduler and of the descheduler, controllerLease that of the controller:
// a leader that is stopped for longer has lost it.
const (
	LeaseDuration   = 5 * time.Second
	controllerLease = 15 * time.Second
)

func (t Target) lease() time.Duration {
	if t == Controller {
		return controllerLease
	}
	return LeaseDuration
}

// Kind names the kind of the fault, by which they are counted.
func (f Fault) Kind() string {
	length := ""
	if f.Blow == Stop {
		length = " shortly"
		if f.Lasts > f.Target.lease() {
			length = " longer than the lease"
		}
	}
	return fmt.Sprintf("%s %s%s%s", f.Target, f.Blow, length, f.When)
}

// kind is a kind of fault and how long it lasts.
type kind struct {
	target   Target
	blow     Blow
	when     Moment
	from, to time.Duration
}

// endsProcess reports whether a process ends by it: the target, or one that loses its lease.
func (k kind) endsProcess() bool { return k.blow == Kill || k.to > k.target.lease() }

// processKinds come in turn, in an order of the seed: none twice before all have come. The most telling ones come first
// in short runs, since the order is drawn within each half.
var processKinds = [][]kind{
	{
		{Scheduler, Kill, AtFirstBind, 500 * time.Millisecond, 2 * time.Second},
		{Scheduler, Stop, AtFirstBind, 6 * time.Second, 8 * time.Second},
		{APIServer, Kill, AtFirstBind, 0, 2 * time.Second},
		{Scheduler, Kill, AtFirstEviction, 500 * time.Millisecond, 2 * time.Second},
		{Controller, Kill, AtOnce, 500 * time.Millisecond, 3 * time.Second},
		{APIServer, Stop, AtOnce, 500 * time.Millisecond, 2 * time.Second},
	},
	{
		{Scheduler, Kill, AtOnce, 500 * time.Millisecond, 5 * time.Second},
		{Scheduler, Stop, AtOnce, 500 * time.Millisecond, 3 * time.Second},
		{Scheduler, Stop, AtOnce, 6 * time.Second, 9 * time.Second},
		{Scheduler, Stop, AtFirstBind, 500 * time.Millisecond, 3 * time.Second},
		{Scheduler, Stop, AtFirstEviction, 6 * time.Second, 8 * time.Second},
		{Controller, Stop, AtOnce, 500 * time.Millisecond, 3 * time.Second},
		{Controller, Stop, AtOnce, 16 * time.Second, 18 * time.Second},
		{APIServer, Kill, AtOnce, 0, 4 * time.Second},
		{APIServer, Kill, AtFirstEviction, 0, 2 * time.Second},
		{APIServer, Stop, AtFirstBind, 500 * time.Millisecond, 2 * time.Second},
		{APIServer, Stop, AtOnce, 6 * time.Second, 8 * time.Second},
	},
}

// moveKinds come beside them where pods are moved.
var moveKinds = []kind{
	{Controller, Kill, AtMove, 500 * time.Millisecond, 3 * time.Second},
	{Scheduler, Kill, AtMove, 500 * time.Millisecond, 2 * time.Second},
	{Controller, Kill, AtTarget, 500 * time.Millisecond, 3 * time.Second},
	{APIServer, Kill, AtMove, 0, 2 * time.Second},
	{Descheduler, Kill, AtOnce, 500 * time.Millisecond, 3 * time.Second},
	{Descheduler, Stop, AtOnce, 6 * time.Second, 9 * time.Second},
	{Controller, Stop, AtMove, 16 * time.Second, 18 * time.Second},
	{Scheduler, Stop, AtTarget, 6 * time.Second, 8 * time.Second},
}

// Calm times: long enough for gangs to be judged in, and short enough for many faults.
const (
	firstCalm          = 12 * time.Second
	leastCalm, maxCalm = 4 * time.Second, 16 * time.Second
	// steadyCalm is that of a steady run: a fault of a process or of a node about every minute.
	steadyCalm = 2 * time.Minute
	// steadyEnds is how many percent of the faults that end processes a steady run keeps: a few in eight hours.
	steadyEnds = 2
)

// processFaults makes up more faults than there is time for: how long each takes is seen when it comes.
func processFaults(o Options, r *rand.Rand) []Fault {
	var faults []Fault
	for n := int(o.Length/leastCalm) + 1; len(faults) < n; {
		kinds := processKinds
		if o.Moves {
			kinds = [][]kind{slices.Concat(moveKinds[:4], processKinds[0]), slices.Concat(moveKinds[4:], processKinds[1])}
		}
		for _, half := range kinds {
			for _, i := range r.Perm(len(half)) {
				k := half[i]
				if o.Steady && k.endsProcess() && !chance(r, steadyEnds) {
					continue
				}
				f := Fault{Target: k.target, Blow: k.blow, When: k.when, Calm: between(r, leastCalm, maxCalm), Lasts: between(r, k.from, k.to)}
				switch {
				case o.Steady:
					f.Calm = steadyCalm
				case len(faults) == 0:
					f.Calm = firstCalm
				}
				faults = append(faults, f)
			}
		}
	}
	return faults
}

func nodeFaults(o Options, r *rand.Rand) []Fault {
	var faults []Fault
	for at := time.Duration(0); at < o.Length; {
		f := Fault{Target: Node, Node: r.IntN(o.Nodes), Calm: between(r, 5*time.Second, 20*time.Second)}
		switch blow := pick(r, 40, 15, 45); {
		case blow == 0 && !o.NodesStay:
			f.Blow, f.Lasts = Remove, between(r, 3*time.Second, 10*time.Second)
		case blow == 1 && !o.NodesStay:
			f.Blow, f.Lasts = Renew, between(r, 500*time.Millisecond, 4*time.Second)
		default:
			f.Blow, f.Lasts = Cordon, between(r, 5*time.Second, 15*time.Second)
		}
		if o.Steady {
			f.Calm = steadyCalm
		}
		faults = append(faults, f)
		at += f.Calm
	}
	return faults
}
