package fairshare

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
)

// Reserved finds what is held for pods to come.
type Reserved interface {
	// Covers returns what is held for all that these pods ask for, together, by its IDs in the
	// ledger; none where that is not all.
	Covers(pods []*v1.Pod) []hold.ID
}

// charge is capacity that is held for pods to come.
type charge struct {
	// pod is the pod that it is held as: it names the queue, and the pod that moves.
	pod    *v1.Pod
	node   string
	amount dispatch.Vector
	// uses is what it has of its node, as far as that counts.
	uses dispatch.Vector
}

// Charge counts capacity that is held for pods to come as used by the queue of a pod like
// this one; an amount of nothing ends it.
func (d *Dispatcher) Charge(id hold.ID, pod *v1.Pod, node string, left hold.Taken) {
	now := charge{pod: pod, node: node, amount: left.Request}
	defer d.lock()()
	before, known := d.charges[id]
	if left.Request.Zero() {
		if known {
			d.discharge(id)
		}
		return
	}
	if known && before.node == node && maps.Equal(before.amount, now.amount) {
		return
	}
	if known {
		d.occupy(id, nil)
	}
	d.charges[id] = now
	d.moving.move(types.UID(id), inPlaceOf(before), inPlaceOf(now))
	if !d.counting {
		return // it is counted with all others, once charges are counted
	}
	d.countCharge(id)
	d.turn()
	d.rechecks = true
	d.poke()
}

// Recheck makes call check waiting jobs again: everything that they ask for may be held for them by now.
func (d *Dispatcher) Recheck() {
	defer d.lock()()
	d.rechecks = true
	d.poke()
}

// SetReserved sets what finds what is held for jobs: where that is all that they ask for, they are admitted whenever they come.
// It is called before anything is scheduled.
func (d *Dispatcher) SetReserved(reserved Reserved) {
	defer d.lock()()
	d.reserved = reserved
}

// countCharge counts a charge, in its queue as that is now. The lock is held.
func (d *Dispatcher) countCharge(id hold.ID) {
	d.moved(inPlaceOf(d.charges[id]))
	d.tally(id)
}

// tally counts a charge, given which of them count less. The lock is held.
func (d *Dispatcher) tally(id hold.ID) {
	c := d.charges[id]
	d.nodes.DropForeign(types.UID(id))
	if _, ours := d.handles[c.pod.Spec.SchedulerName]; !ours {
		d.book.Gone(string(id), d.moment())
		d.occupy(id, nil)
		d.nodes.SetForeign(types.UID(id), c.node, c.amount)
		d.book.SetTotal(d.nodes.Total())
		return
	}
	queue, counts := d.queueOf(c.pod), maps.Clone(c.amount)
	if pod := inPlaceOf(c); pod != "" && d.inPlace[pod] == id {
		for name, amount := range d.seen[pod].amount {
			counts[name] = max(0, counts[name]-amount)
		}
		if counts.Zero() {
			d.occupy(id, nil)
			d.do(d.book.Gone(string(id), d.moment()))
			return
		}
	}
	d.occupy(id, counts)
	kind := d.nodes.Enter(c.pod)
	amount, _ := d.nodes.Charge(counts, kind, c.node)
	d.nodes.Leave(kind)
	d.book.Count(string(id), dispatch.Usage{Queue: queue, Amount: amount, Runs: true})
	d.book.SetTotal(d.nodes.Total())
}

// occupy updates what a charge has of its node: of a node that takes no more pods, only what is in use is there to be shared. The
// lock is held.
func (d *Dispatcher) occupy(id hold.ID, uses dispatch.Vector) {
	c := d.charges[id]
	gives, takes := d.nodes.Use(c.node, c.uses, -1), d.nodes.Use(c.node, uses, 1)
	if c.uses = uses; gives || takes {
		d.book.SetTotal(d.nodes.Total())
	}
	d.charges[id] = c
}

// firstOf returns which of the charges for a pod that moves counts only beyond what the pod has: the first in its queue, while the
// pod runs; empty for none. The author of a Reservation chooses the pod, so only one counts less for each pod, by no more than the
// pod has. The lock is held.
func (d *Dispatcher) firstOf(pod types.UID) (first hold.ID) {
	of, counted := d.book.Counted(string(pod))
	if _, there := d.seen[pod]; !there || !counted || !of.Runs {
		return ""
	}
	for uid := range d.moving[pod] {
		id := hold.ID(uid)
		held := d.charges[id].pod
		if _, ours := d.handles[held.Spec.SchedulerName]; ours && (first == "" || id < first) && d.queueOf(held) == of.Queue {
			first = id
		}
	}
	return first
}

// discharge ends a charge. The lock is held.
func (d *Dispatcher) discharge(id hold.ID) {
	pod := inPlaceOf(d.charges[id])
	d.moving.move(types.UID(id), pod, "")
	d.occupy(id, nil)
	delete(d.charges, id)
	if d.nodes.DropForeign(types.UID(id)) {
		d.book.SetTotal(d.nodes.Total())
	}
	d.moved(pod) // another may count less now
	d.do(d.book.Gone(string(id), d.moment()))
	d.freed = true
	d.poke()
}

// inPlaceOf returns the pod that moves to what is held; empty for none.
func inPlaceOf(c charge) types.UID {
	if c.pod == nil {
		return ""
	}
	return reservation.InPlaceOf(c.pod)
}

// moved recounts what is held for a pod that moves, by how the pod counts now. The lock is held.
func (d *Dispatcher) moved(pod types.UID) {
	if !d.counting || pod == "" {
		return
	}
	before, now := d.inPlace[pod], d.firstOf(pod)
	if d.inPlace[pod] = now; now == "" {
		delete(d.inPlace, pod)
	}
	for _, id := range []hold.ID{before, now} {
		if _, held := d.charges[id]; held {
			d.tally(id)
			d.rechecks = true
			d.poke()
		}
	}
}

// countCharges counts again the charges that an event may concern. The lock is held.
func (d *Dispatcher) countCharges(concerned func(c charge) bool) {
	for id, c := range d.charges {
		if d.counting && concerned(c) {
			d.countCharge(id)
		}
	}
}

// covered reports whether everything that is to be placed with a pod is held for it, and counts as used
// by its own queue already: it takes nothing from other jobs, and has no turn to wait for.
func (d *Dispatcher) covered(pod *v1.Pod, pods []*v1.Pod) bool {
	if d.reserved == nil {
		return false
	}
	ids := d.reserved.Covers(pods)
	if len(ids) == 0 {
		return false
	}
	defer d.lock()()
	queue := d.queueOf(pod)
	for _, id := range ids {
		if usage, ok := d.book.Counted(string(id)); !ok || usage.Queue != queue {
			return false
		}
	}
	return true
}

// callCovered activates the pods that represent waiting jobs for which something is
// held. It calls Covers without the lock.
func (d *Dispatcher) callCovered() {
	var waiting []*v1.Pod
	unlock := d.lock()
	if !d.rechecks || d.reserved == nil {
		unlock()
		return
	}
	d.rechecks = false
	for uid := range d.seen {
		usage, _ := d.book.Counted(string(uid))
		if usage.Job == "" || d.book.Phase(usage.Job) != dispatch.Waiting || d.book.Speaker(usage.Job) != string(uid) {
			continue
		}
		if pod := d.known(uid); pod != nil {
			waiting = append(waiting, pod)
		}
	}
	unlock()
	waiting = slices.DeleteFunc(waiting, func(pod *v1.Pod) bool { return len(d.reserved.Covers([]*v1.Pod{pod})) == 0 })
	if len(waiting) > 0 {
		defer d.lock()()
		d.called = append(d.called, waiting...)
	}
}
