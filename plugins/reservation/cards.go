package reservation

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/card"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
)

// Dealer is a plugin that deals out the memory of GPU cards.
type Dealer interface {
	// CardRoom reports whether the pod of a cycle finds a card on a node, beside what is kept there.
	CardRoom(state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo, kept card.Kept) bool
}

// KeptCards returns what is held on the GPU cards of a node, as far as the pod of a cycle, or of a what-if, is
// concerned. The dealer asks for it. Where nothing is held on a card of the node it costs a look-up.
func (pl *Reservation) KeptCards(state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) card.Kept {
	placements := pl.reservations.Cards(info.Node().Name)
	if len(placements) == 0 {
		return card.Kept{}
	}
	if a, uses := pl.reservations.Allocation(pod); uses {
		for _, p := range placements {
			if p.Reservation == a.UID && p.Index == a.Index {
				kept := keptBut("", nil, placements, pod, info) // what it has not taken is others'
				kept.Has, kept.Seat = p.Users[pod.UID] > 0, p.Card
				return kept
			}
		}
		return keptBut("", nil, placements, pod, info)
	}
	c := cycleOf(state)
	if c == nil {
		return keptBut("", nil, placements, pod, info)
	}
	seat, _ := pl.choose(c, state, pod, info)
	return keptFor(c, seat, placements, pod, info)
}

// TakenCard returns the card of the seat that a pod of a what-if has taken; false where it has none.
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

// dealt reports whether a pod that is to use a seat finds memory on a card, which has to be that of the seat
// where the pod takes memory of it.
func (pl *Reservation) dealt(c *cycle, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo, seat *reservation.Seat) bool {
	if c.demand.Request[v1alpha1.GPUMemoryResource] <= 0 {
		return true
	}
	placements := pl.reservations.Cards(info.Node().Name)
	if len(placements) == 0 {
		return true // that is for the dealer alone
	}
	kept := keptFor(c, seat, placements, pod, info)
	for _, dealer := range pl.dealers() {
		if !dealer.CardRoom(state, pod, info, kept) {
			return false
		}
	}
	return true
}

// keptFor returns what is kept on cards for other pods than one that uses a seat; seat is nil where it uses
// none.
func keptFor(c *cycle, seat *reservation.Seat, placements []reservation.OnCard, pod *v1.Pod, info fwk.NodeInfo) card.Kept {
	left := map[hold.ID]int64{}
	for _, one := range c.seats[info.Node().Name] {
		left[one.ID] = one.Left.Request[v1alpha1.GPUMemoryResource] // as a what-if has it
	}
	own := hold.ID("")
	if seat != nil && seat.Left.Part(c.demand.Amount()).Request[v1alpha1.GPUMemoryResource] > 0 {
		own = seat.ID
	}
	kept := keptBut(own, left, placements, pod, info)
	for _, p := range placements {
		if p.ID == own {
			kept.Has, kept.Seat = true, p.Card
		}
	}
	return kept
}

// keptBut adds up what is kept by all placements but one: what is left of them, by left where it has them, and
// what users have that a what-if has taken off the node: they leave it to the next.
func keptBut(own hold.ID, left map[hold.ID]int64, placements []reservation.OnCard, pod *v1.Pod, info fwk.NodeInfo) card.Kept {
	kept := card.Kept{By: map[int]int64{}}
	there := func(user types.UID) bool {
		return slices.ContainsFunc(info.GetPods(), func(p fwk.PodInfo) bool { return p.GetPod().UID == user })
	}
	for _, p := range placements {
		if p.ID != own {
			rest, known := left[p.ID]
			if !known {
				rest = p.Left
			}
			kept.By[p.Card] += rest
		}
		for user, memory := range p.Users {
			if user != pod.UID && !there(user) {
				kept.By[p.Card] += memory
			}
		}
	}
	return kept
}
