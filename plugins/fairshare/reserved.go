package fairshare

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// Reserved finds what is held for pods to come.
type Reserved interface {
	// Covers returns what is held for all that these pods ask for, together, by its IDs in the
	// ledger; none where that is not all.
	Covers(pods []*v1.Pod) []hold.ID
	// AwaitsReservation reports whether a pod that does not fit waits for a Reservation.
	AwaitsReservation(pod *v1.Pod) bool
}

// Charge counts capacity that is held for pods to come as used by the queue of a pod like
// this one; an amount of nothing ends it.
func (d *Dispatcher) Charge(id hold.ID, pod *v1.Pod, node string, left hold.Taken) {
	defer d.lock()()
	switch {
	case left.Request.Zero():
		if d.usage.DropHeld(id) {
			d.signal()
		}
	case d.usage.SetHeld(id, pod, node, left.Request):
		d.recheck()
	}
}

// Recheck makes call check waiting jobs again: everything that they ask for may be held for them by now.
func (d *Dispatcher) Recheck() {
	defer d.lock()()
	d.recheck()
}

func (d *Dispatcher) recheck() {
	d.rechecks = true
	d.signal()
}

// SetReserved sets who knows what is reserved for jobs. A job for which all that it asks for is reserved is admitted at
// once. It is called before anything is scheduled.
func (d *Dispatcher) SetReserved(reserved Reserved) {
	defer d.lock()()
	d.reserved = reserved
}

// covered reports whether everything that must be placed with a pod is held for it, and counts as used
// by its own queue already: it takes nothing from other jobs, and has no turn to wait for. A queue that admits nothing
// admits only what comes in place of a pod that was moved.
func (d *Dispatcher) covered(pod *v1.Pod, pods []*v1.Pod) bool {
	claims := func(pod *v1.Pod) bool { return len(pod.Spec.ResourceClaims) > 0 } // which no Reservation holds
	if d.reserved == nil || slices.ContainsFunc(pods, claims) {
		return false
	}
	ids := d.reserved.Covers(pods)
	if len(ids) == 0 {
		return false
	}
	defer d.lock()()
	queue := d.queueOf(pod)
	shut := d.book.Shut(queue).Reason
	for _, id := range ids {
		if held, ok := d.book.Counted(string(id)); !ok || held.Queue != queue || shut != "" && !d.usage.Moves(id) {
			return false
		}
	}
	return true
}

// callCovered activates the pods that represent waiting jobs for which something is
// held. It calls Covers without the lock.
func (d *Dispatcher) callCovered() {
	unlock := d.lock()
	if !d.rechecks || d.reserved == nil {
		unlock()
		return
	}
	d.rechecks = false
	var waiting []*v1.Pod
	for _, j := range d.book.Jobs(queueing.Waiting) {
		waiting = append(waiting, d.podsOf([]string{j.Pod})...)
	}
	unlock()
	waiting = slices.DeleteFunc(waiting, func(pod *v1.Pod) bool { return len(d.reserved.Covers([]*v1.Pod{pod})) == 0 })
	if len(waiting) > 0 {
		defer d.lock()()
		d.toActivate = append(d.toActivate, waiting...)
		d.changed()
	}
}
