package usage

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// holds is the capacity that is held for pods to come.
type holds struct {
	// counting is whether it is in the book: from the moment on in which queues can be looked up.
	counting bool
	all      map[hold.ID]held
	// moving is what is held for pods that move, by these pods; inPlace is which of it counts less while the pod counts.
	moving  Index[types.UID]
	inPlace map[types.UID]hold.ID
}

// held is capacity on a node that is held for pods to come.
type held struct {
	// pod is the pod that it is held as: it names the queue, and the pod that moves.
	pod    *v1.Pod
	node   string
	amount resource.Vector
	// uses is what it has of its node, as far as that counts.
	uses resource.Vector
}

func newHolds() holds {
	return holds{all: map[hold.ID]held{}, moving: Index[types.UID]{}, inPlace: map[types.UID]hold.ID{}}
}

// StartHeld begins to count what is held.
func (c *Counter) StartHeld() {
	c.counting = true
	c.recountHeld(func(held) bool { return true })
}

// SetHeld counts an amount on a node, which is held for pods to come, as used by the queue of a pod like this one. It
// reports whether that has changed anything.
func (c *Counter) SetHeld(id hold.ID, pod *v1.Pod, node string, amount resource.Vector) bool {
	before, known := c.all[id]
	now := held{pod: pod, node: node, amount: amount}
	if known && before.node == node && maps.Equal(before.amount, now.amount) {
		return false
	}
	if known {
		c.setHeldOfNode(id, nil)
	}
	c.all[id] = now
	c.moving.Move(types.UID(id), inPlaceOf(before), inPlaceOf(now))
	if c.counting {
		c.countHeld(id)
	}
	return c.counting
}

// DropHeld ends what is held. It reports whether anything was.
func (c *Counter) DropHeld(id hold.ID) bool {
	h, known := c.all[id]
	if !known {
		return false
	}
	pod := inPlaceOf(h)
	c.moving.Move(types.UID(id), pod, "")
	c.setHeldOfNode(id, nil)
	delete(c.all, id)
	c.dropForeign(types.UID(id))
	c.recountHeldFor(pod) // another may count less now
	c.book.Uncount(string(id))
	return true
}

// Moves reports whether something is held for a pod that moves.
func (c *Counter) Moves(id hold.ID) bool { return inPlaceOf(c.all[id]) != "" }

// RecountHeld counts again what is held as pods of a namespace.
func (c *Counter) RecountHeld(namespace string) {
	c.recountHeld(func(h held) bool { return h.pod.Namespace == namespace })
}

func (c *Counter) recountHeld(concerned func(held) bool) {
	for id, h := range c.all {
		if c.counting && concerned(h) {
			c.countHeld(id)
		}
	}
}

// countHeld counts what is held, in its queue as that is now.
func (c *Counter) countHeld(id hold.ID) {
	c.recountHeldFor(inPlaceOf(c.all[id]))
	c.recountHold(id)
}

// recountHold counts what is held, given which of it counts less.
func (c *Counter) recountHold(id hold.ID) {
	h := c.all[id]
	c.dropForeign(types.UID(id))
	if !c.caller.Ours(h.pod.Spec.SchedulerName) {
		c.book.Uncount(string(id))
		c.setHeldOfNode(id, nil)
		c.nodes.SetForeign(types.UID(id), h.node, c.claims.Renamed(h.amount))
		c.share()
		return
	}
	counts := c.countsOf(id)
	c.setHeldOfNode(id, counts)
	if counts.Zero() {
		c.book.Uncount(string(id))
		return
	}
	pool, _ := c.nodes.Pool(h.node) // it is known, since something counts
	c.book.Count(string(id), queueing.Usage{Queue: c.caller.QueueOf(h.pod), Amount: counts.In(pool), Runs: true})
}

// countsOf returns what counts of what is held: nothing on a node that is gone, and if it is held in place of a pod,
// only what exceeds the amount of that pod.
func (c *Counter) countsOf(id hold.ID) resource.Vector {
	h := c.all[id]
	if _, known := c.nodes.Pool(h.node); !known {
		return nil
	}
	counts := maps.Clone(c.claims.Renamed(h.amount))
	if pod := inPlaceOf(h); pod != "" && c.inPlace[pod] == id {
		for name, amount := range c.usageOf(pod).Amount {
			_, plain := resource.Split(name)
			counts[plain] = max(0, counts[plain]-amount)
		}
	}
	return counts
}

// setHeldOfNode updates what is held of a node: a node that takes no more pods shares only what is in use.
func (c *Counter) setHeldOfNode(id hold.ID, uses resource.Vector) {
	h := c.all[id]
	gives, takes := c.nodes.Use(h.node, h.uses, -1), c.nodes.Use(h.node, uses, 1)
	if h.uses = uses; gives || takes {
		c.share()
	}
	c.all[id] = h
}

// recountHeldFor counts again what is held for a pod that moves, by how the pod counts now.
func (c *Counter) recountHeldFor(pod types.UID) {
	if !c.counting || pod == "" {
		return
	}
	before, now := c.inPlace[pod], c.firstFor(pod)
	if c.inPlace[pod] = now; now == "" {
		delete(c.inPlace, pod)
	}
	for _, id := range slices.Compact([]hold.ID{before, now}) {
		if _, known := c.all[id]; known {
			c.recountHold(id)
			c.caller.HeldChanged()
		}
	}
}

// firstFor returns which of what is held for a pod that moves counts only beyond what the pod has: the first in its
// queue that is on a node, while the pod runs; empty for none. The author of a Reservation chooses the pod, so only one
// counts less for each pod, by no more than the pod has.
func (c *Counter) firstFor(pod types.UID) (first hold.ID) {
	of, counted := c.book.Counted(string(pod))
	if _, known := c.pods[pod]; !known || !counted || !of.Runs {
		return ""
	}
	for uid := range c.moving[pod] {
		id := hold.ID(uid)
		as := c.all[id].pod
		if _, known := c.nodes.Pool(c.all[id].node); known && c.caller.Ours(as.Spec.SchedulerName) &&
			(first == "" || id < first) && c.caller.QueueOf(as) == of.Queue {
			first = id
		}
	}
	return first
}

// inPlaceOf returns the pod that moves to what is held; empty for none.
func inPlaceOf(h held) types.UID {
	if h.pod == nil {
		return ""
	}
	return reservationstate.InPlaceOf(h.pod)
}
