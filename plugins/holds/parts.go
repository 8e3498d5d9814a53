package holds

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// Keep holds capacity for no particular pod yet: for those that may use what its holder has. It
// replaces a hold of the same ID; parts that pods have of the old hold become parts of the new one.
func (h *Holds) Keep(one hold.Hold) {
	h.change(func(l *hold.Ledger) hold.Change {
		before, ok := l.Hold(one.ID)
		l.Put(one)
		if ok && before.Node != one.Node {
			return hold.Change{Freed: []string{before.Node}}
		}
		return hold.Change{}
	})
}

// Drop ends what Keep holds. Parts that pods have taken stay theirs.
func (h *Holds) Drop(id hold.ID) {
	h.change(func(l *hold.Ledger) hold.Change {
		one, ok := l.Hold(id)
		if !ok || !l.Drop(id) {
			return hold.Change{}
		}
		return hold.Change{Freed: []string{one.Node}}
	})
}

// Consume makes a pod that is counted on a node from now on take its part of what is kept there.
// It returns false where there is nothing to take.
func (h *Holds) Consume(id hold.ID, pod types.UID, d Demand) (took bool) {
	h.change(func(l *hold.Ledger) hold.Change {
		took = l.Consume(id, pod, d.Request, d.Ports...)
		return hold.Change{}
	})
	return took
}

// Return makes a pod give back what it has taken.
func (h *Holds) Return(pod types.UID) {
	if !h.Empty() {
		h.change(func(l *hold.Ledger) hold.Change { return l.Return(pod) })
	}
}

// Part returns what a pod has taken of what is kept under an ID; nothing where it has no part of it.
func (h *Holds) Part(id hold.ID, pod types.UID) hold.Taken {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ledger.Part(id, pod)
}

// Left returns what pods have not taken of what is kept, by ID, in order.
func (h *Holds) Left(ids ...hold.ID) []hold.Taken {
	h.mu.RLock()
	defer h.mu.RUnlock()
	left := make([]hold.Taken, len(ids))
	for i, id := range ids {
		left[i] = h.ledger.Left(id)
	}
	return left
}

// Kept returns what is kept under an ID: the whole of it.
func (h *Holds) Kept(id hold.ID) (hold.Hold, bool) {
	if h.Empty() {
		return hold.Hold{}, false
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.ledger.Hold(id)
}
