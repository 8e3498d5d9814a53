package reservations

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
)

// Cards lists the placements on GPU cards of a node, in any order. Where there are none it costs a look-up.
func (r *Registry) Cards(node string) []reservation.OnCard {
	r.mu.RLock()
	var list []reservation.OnCard
	for id, p := range r.cards[node] {
		users := map[types.UID]int64{}
		for pod := range r.of[id] {
			users[pod] = 0
		}
		list = append(list, reservation.OnCard{Users: users, ID: id, Reservation: p.entry.object.UID, Index: p.index, Card: p.card})
	}
	r.mu.RUnlock()
	for i, one := range list {
		for pod := range one.Users {
			if memory := r.holds.Part(one.ID, pod).Request[v1alpha1.GPUMemoryResource]; memory > 0 {
				one.Users[pod] = memory
			} else {
				delete(one.Users, pod)
			}
		}
		list[i].Left = r.holds.Left(one.ID)[0].Request[v1alpha1.GPUMemoryResource]
	}
	return list
}

// cardOf returns the card of a placement; negative for none that is known.
func cardOf(p v1alpha1.ReservationPlacement) int {
	card, err := strconv.Atoi(p.Annotations[v1alpha1.GPUCardAnnotation])
	if err != nil {
		return -1
	}
	return card
}

// add takes in a place. mu is held.
func (r *Registry) add(p *place) {
	r.places[p.id] = p
	if p.card >= 0 {
		if r.cards[p.node] == nil {
			r.cards[p.node] = map[hold.ID]*place{}
		}
		r.cards[p.node][p.id] = p
	}
}

// remove takes out a place that may be there. mu is held.
func (r *Registry) remove(id hold.ID) {
	p := r.places[id]
	if p == nil {
		return
	}
	delete(r.places, id)
	delete(r.cards[p.node], id)
	if len(r.cards[p.node]) == 0 {
		delete(r.cards, p.node)
	}
}
