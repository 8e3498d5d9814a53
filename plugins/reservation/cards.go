package reservation

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource/gpucards"
)

// CardAllocator is a plugin that allocates the memory of GPU cards.
type CardAllocator interface {
	// CardRoom reports whether the pod of a cycle finds a card on a node, beside what is kept there.
	CardRoom(state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo, kept gpucards.Kept) bool
}

// KeptCards returns what is held on the GPU cards of a node against the pod of a cycle, or of a what-if. The card
// allocator calls it. Without holds on cards of the node it costs one lookup.
func (pl *Reservation) KeptCards(state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) gpucards.Kept {
	placements := pl.reservations.Cards(info.Node().Name)
	if len(placements) == 0 {
		return gpucards.Kept{}
	}
	if a, uses := pl.reservations.Allocation(pod); uses {
		for _, p := range placements {
			if p.Reservation == a.UID && p.Index == a.Index {
				kept := pl.keptBut(nil, "", placements, pod, info) // what it has not taken is for others
				kept.Has, kept.Card = p.Parts[pod.UID] > 0, p.Card
				return kept
			}
		}
		return pl.keptBut(nil, "", placements, pod, info)
	}
	c := cycleOf(state)
	if c == nil {
		return pl.keptBut(nil, "", placements, pod, info)
	}
	slot, _ := pl.chooseSlot(c, state, pod, info)
	return pl.keptFor(c, slot, placements, pod, info)
}

// TakenCard returns the card of the slot that a pod of a what-if has taken; false if it has none.
func (pl *Reservation) TakenCard(state fwk.CycleState, pod types.UID) (int, bool) {
	c := cycleOf(state)
	if c == nil {
		return 0, false
	}
	p, ok := c.parts[pod]
	if !ok || p.card < 0 || p.amount.Request[v1alpha1.GPUMemoryResource] <= 0 {
		return 0, false
	}
	return p.card, true
}

// cardFits reports whether a pod that would use a slot finds memory on a card, which must be the slot's card if the pod
// takes memory of it.
func (pl *Reservation) cardFits(c *cycle, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo,
	slot *reservationstate.Slot) bool {
	if c.demand.Request[v1alpha1.GPUMemoryResource] <= 0 {
		return true
	}
	placements := pl.reservations.Cards(info.Node().Name)
	if len(placements) == 0 {
		return true // that is for the dealer alone
	}
	kept := pl.keptFor(c, slot, placements, pod, info)
	for _, dealer := range pl.cardAllocators() {
		if !dealer.CardRoom(state, pod, info, kept) {
			return false
		}
	}
	return true
}

// keptFor returns what is kept on cards for pods other than one that uses a slot; slot is nil if it uses none.
func (pl *Reservation) keptFor(c *cycle, slot *reservationstate.Slot, placements []reservationstate.OnCard,
	pod *v1.Pod, info fwk.NodeInfo) gpucards.Kept {
	own := hold.ID("")
	if slot != nil && slot.Left.Part(c.demand.Amount()).Request[v1alpha1.GPUMemoryResource] > 0 {
		own = slot.ID
	}
	kept := pl.keptBut(c, own, placements, pod, info)
	for _, p := range placements {
		if p.ID == own {
			kept.Has, kept.Card = true, p.Card
		}
	}
	return kept
}

// keptBut adds up, for each card, what placements but own keep: what is left of them, and the parts of users that are
// not on the node, since they are nominated to it or a what-if has removed them. With c, its slots say what is left,
// which includes the parts that are movable.
func (pl *Reservation) keptBut(c *cycle, own hold.ID, placements []reservationstate.OnCard, pod *v1.Pod,
	info fwk.NodeInfo) gpucards.Kept {
	kept, left := gpucards.Kept{By: map[int]int64{}}, map[hold.ID]int64{}
	if c != nil {
		for _, slot := range c.slots[info.Node().Name] {
			left[slot.ID] = slot.Left.Request[v1alpha1.GPUMemoryResource]
		}
	}
	there := func(user types.UID) bool {
		return slices.ContainsFunc(info.GetPods(), func(p fwk.PodInfo) bool { return p.GetPod().UID == user })
	}
	moves := func(user types.UID) bool {
		one, ok := pl.holds.HoldOf(user)
		return ok && c.movable(one)
	}
	for _, p := range placements {
		rest, known := left[p.ID]
		if !known {
			rest = p.Left
		}
		if p.ID != own {
			kept.By[p.Card] += rest
		}
		for user, memory := range p.Parts {
			if user != pod.UID && !there(user) && !(known && moves(user)) {
				kept.By[p.Card] += memory
			}
		}
	}
	return kept
}
