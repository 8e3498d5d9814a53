package reservations

import (
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// Cards lists the placements on GPU cards of a node, in any order. Without any it costs one lookup.
func (r *Registry) Cards(node string) []reservationstate.OnCard {
	r.mu.RLock()
	var list []reservationstate.OnCard
	for id, p := range r.cards[node] {
		list = append(list, reservationstate.OnCard{ID: id, Reservation: p.entry.object.UID, Index: p.index, Card: p.card})
	}
	r.mu.RUnlock()
	for i := range list {
		one := &list[i]
		one.Left, one.Parts = memoryOf(r.holds.LeftOf(one.ID)[0]), map[types.UID]int64{}
		for pod, part := range r.holds.PartsOf(one.ID) {
			if memory := memoryOf(part); memory > 0 {
				one.Parts[pod] = memory
			}
		}
	}
	return list
}

func memoryOf(t hold.Taken) int64 { return t.Request[v1alpha1.GPUMemoryResource] }

// cardOf returns the card of a placement; negative if unknown.
func cardOf(p v1alpha1.ReservationPlacement) int {
	card, err := strconv.Atoi(p.Annotations[v1alpha1.GPUCardAnnotation])
	if err != nil {
		return -1
	}
	return card
}

// addPlace adds a place. mu must be held.
func (r *Registry) addPlace(p *place) {
	r.places[p.id] = p
	if p.card >= 0 {
		nested.Set(r.cards, p.node, p.id, p)
	}
}

// removePlace removes a place, if it exists. mu must be held.
func (r *Registry) removePlace(id hold.ID) {
	p := r.places[id]
	if p == nil {
		return
	}
	delete(r.places, id)
	nested.Delete(r.cards, p.node, id)
}
