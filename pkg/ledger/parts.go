package ledger

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Reserve holds capacity for no particular pod yet: any pod that may use its holder's capacity may take a part. It
// replaces a hold of the same ID; parts of the old hold become parts of the new one.
func (h *Shared) Reserve(one hold.Hold) {
	h.change(func(l *hold.Ledger) hold.Change { return l.Put(one) })
}

// DropReserved ends what Reserve holds. Pods keep the parts that they have taken.
func (h *Shared) DropReserved(id hold.ID) {
	h.change(func(l *hold.Ledger) hold.Change {
		one, ok := l.Hold(id)
		if !ok || !l.Drop(id) {
			return hold.Change{}
		}
		return hold.Change{Freed: []string{one.Node}}
	})
}

// Consume gives a pod that is now counted on a node its part of what is reserved there. It returns false if there is
// nothing to take.
func (h *Shared) Consume(id hold.ID, pod types.UID, d Demand) (took bool) {
	h.change(func(l *hold.Ledger) hold.Change {
		took = l.Consume(id, pod, d.Request, d.Ports...)
		return hold.Change{}
	})
	return took
}

// ReturnPart returns what a pod has taken.
func (h *Shared) ReturnPart(pod types.UID) {
	h.changeHeld(func(l *hold.Ledger) hold.Change { return l.ReturnParts(pod) })
}

// PartsOf returns what pods have taken of a reserved hold.
func (h *Shared) PartsOf(id hold.ID) map[types.UID]hold.Taken {
	return read(h, func(l *hold.Ledger) map[types.UID]hold.Taken { return l.Parts(id) })
}

// LeftWithout returns what would be left of reserved holds, in the order of ids, if the holds for which without returns
// true were not there. The lock is held while without runs.
func (h *Shared) LeftWithout(without func(hold.Hold) bool, ids ...hold.ID) []hold.Taken {
	h.mu.RLock()
	defer h.mu.RUnlock()
	left := make([]hold.Taken, len(ids))
	for i, id := range ids {
		left[i] = h.ledger.LeftWithout(without, id)
	}
	return left
}

// LeftOf returns what pods have not taken of reserved holds, in the order of ids.
func (h *Shared) LeftOf(ids ...hold.ID) []hold.Taken {
	return h.LeftWithout(func(hold.Hold) bool { return false }, ids...)
}
