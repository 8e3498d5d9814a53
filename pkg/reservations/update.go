package reservations

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate/owners"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Update processes a Reservation as stored: it holds what follows from its status, from the pods that use it, and from
// the time.
func (r *Registry) Update(now *v1alpha1.Reservation) {
	r.acting.Lock()
	defer r.acting.Unlock()
	r.update(now)
}

// updateEntry processes a Reservation after a local write, or after time has passed; only the watch reports new and
// deleted Reservations. It returns false if the entry no longer belongs to a Reservation.
func (r *Registry) updateEntry(e *entry, now *v1alpha1.Reservation) bool {
	r.acting.Lock()
	defer r.acting.Unlock()
	if !r.current(now.Name, e) {
		return false
	}
	r.update(now)
	return r.current(now.Name, e)
}

func (r *Registry) current(name string, e *entry) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.entries[name] == e
}

// update does what Update does. acting must be held.
func (r *Registry) update(now *v1alpha1.Reservation) {
	r.mu.RLock()
	known := r.entries[now.Name]
	r.mu.RUnlock()
	if known != nil && known.object.UID == now.UID && isOlder(now, known.object) {
		return // it was written here since
	}
	ended := reservationstate.WhyOver(now, r.clock.Now()) != ""
	if known != nil && known.object.UID != now.UID || ended {
		r.endReservation(now.Name)
	}
	if ended {
		return
	}
	who, err := owners.OfReservation(now)
	if err != nil {
		klog.Background().Error(err, "Failed to read the owners of a Reservation; no pod may use it", "reservation", now.Name)
	}
	e, keep, drop, specChanged := r.recordReservation(now, who)
	if specChanged {
		r.charges.Recheck()
	}
	fresh := r.holdPlaces(e, keep, drop)
	r.holdPromises(e)
	for _, p := range keep {
		r.consumePlace(p)
		if slices.Contains(fresh, p) {
			r.chargePlace(p) // for what no pod uses of it
		}
		if specChanged || slices.Contains(fresh, p) {
			r.holds.ReportFreed(p.node) // pods that wait for it may use it now
		}
	}
}

// recordReservation records a Reservation. keep are its places, and drop the holds to end.
func (r *Registry) recordReservation(now *v1alpha1.Reservation,
	who []owners.Owner) (e *entry, keep []*place, drop []hold.ID, specChanged bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e = r.entries[now.Name]; e == nil {
		e = &entry{places: map[int32]*place{}}
		r.entries[now.Name] = e
	}
	specChanged = e.object == nil || e.object.Generation != now.Generation
	e.object = now
	if e.template == nil {
		e.template = templateOf(now)
		e.demand = ledger.DemandOf(&framework.PodInfo{Pod: e.template})
		e.refusal = sync.OnceValue(func() string { return refusal(e.template) })
	}
	wanted := map[int32]v1alpha1.ReservationPlacement{}
	for _, p := range now.Status.Placements {
		switch {
		case p.Spent:
		case r.usedUp(e, idOf(now.UID, p.Index), p):
			e.recordUse(p.Index, p.NodeName, r.clock.Now()) // also when its user is gone
			r.work.AddAfter(now.Name, writeDelay)
		default:
			wanted[p.Index] = p
		}
	}
	keep, drop = e.setPlaces(wanted)
	for _, id := range drop {
		r.removePlace(id)
	}
	for _, p := range keep {
		r.addPlace(p)
	}
	r.owners.Set(now.Name, who...)
	r.held.Store(int64(len(r.places)))
	return e, keep, drop, specChanged
}

// isOlder reports whether an object is an earlier version of another; false if they cannot be compared.
func isOlder(a, b *v1alpha1.Reservation) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// usedUp reports whether a single-use placement has been used: a pod is bound to it. mu must be held.
func (r *Registry) usedUp(e *entry, id hold.ID, p v1alpha1.ReservationPlacement) bool {
	if !reservationstate.IsSingleUse(e.object) {
		return false
	}
	if e.used[p.Index].node == p.NodeName {
		return true
	}
	if known := r.places[id]; known != nil && known.by != "" {
		u := r.users[known.by]
		return u == nil || u.bound
	}
	for _, u := range r.of[id] {
		if u.runsOn(e.object, p.NodeName) {
			return true
		}
	}
	return false
}

// setPlaces sets the places of an entry, by index. It returns the current places, and the holds to end.
func (e *entry) setPlaces(wanted map[int32]v1alpha1.ReservationPlacement) (keep []*place, drop []hold.ID) {
	for _, index := range sortedKeys(e.places) {
		if p := e.places[index]; wanted[index].NodeName != p.node || cardOf(wanted[index]) != p.card {
			drop = append(drop, p.id)
			delete(e.places, index)
		}
	}
	for _, index := range sortedKeys(wanted) {
		p := e.places[index]
		if p == nil {
			p = &place{id: idOf(e.object.UID, index), entry: e, index: index, node: wanted[index].NodeName,
				demand: e.heldBy(wanted[index]), card: cardOf(wanted[index])}
			e.places[index] = p
		}
		keep = append(keep, p)
	}
	return keep, drop
}

// heldBy returns what a placement holds: what was found for it. Admission may make something else of the template by
// now.
func (e *entry) heldBy(p v1alpha1.ReservationPlacement) ledger.Demand {
	if len(p.Allocatable) == 0 {
		return e.demand
	}
	request := resource.FromList(p.Allocatable)
	maps.DeleteFunc(request, func(_ v1.ResourceName, amount int64) bool { return amount == 0 })
	return ledger.Demand{Request: request, Ports: e.demand.Ports}
}

// holdPlaces makes the ledger hold exactly the places of an entry. It returns those that it did not hold before. acting
// must be held.
func (r *Registry) holdPlaces(e *entry, keep []*place, drop []hold.ID) (fresh []*place) {
	for _, id := range drop {
		r.releasePlacement(id)
	}
	for _, p := range keep {
		if now, ok := r.holds.Hold(p.id); ok && now.Node == p.node {
			continue
		}
		r.holds.Reserve(hold.Hold{
			ID: p.id, Holder: holderOf(e.object.UID), Node: p.node, Reason: hold.Reservation,
			Priority: corev1helpers.PodPriority(e.template),
			Pods:     1, Request: p.demand.Request, Ports: p.demand.Ports,
		})
		fresh = append(fresh, p)
	}
	return fresh
}

// releasePlacement ends what the ledger holds for a placement.
func (r *Registry) releasePlacement(id hold.ID) {
	r.holds.DropReserved(id)
	r.charges.Charge(id, nil, "", hold.Taken{})
}

// chargePlace charges what is left of a placement to its queue.
func (r *Registry) chargePlace(p *place) {
	r.charges.Charge(p.id, p.entry.template, p.node, r.holds.LeftOf(p.id)[0])
}

// reservationDeleted processes the deletion of a Reservation.
func (r *Registry) reservationDeleted(name string) {
	r.acting.Lock()
	defer r.acting.Unlock()
	r.endReservation(name)
}

// endReservation releases all that is held for a Reservation, and removes its reserve pods. acting must be held.
func (r *Registry) endReservation(name string) {
	r.mu.Lock()
	e := r.entries[name]
	if e == nil {
		r.mu.Unlock()
		return
	}
	delete(r.entries, name)
	r.owners.Set(name)
	_, drop := e.setPlaces(nil)
	for _, id := range drop {
		r.removePlace(id)
	}
	r.held.Store(int64(len(r.places)))
	e.fail("Reservation \"" + name + "\" has ended")
	r.mu.Unlock()
	for _, id := range drop {
		r.releasePlacement(id)
	}
	r.setPromises(e, nil)
	r.withdrawReservePods(e)
}

// withdrawReservePods removes the reserve pods that still look for a place. acting must be held.
func (r *Registry) withdrawReservePods(e *entry) {
	r.mu.Lock()
	pods := e.pods
	e.pods = nil
	r.mu.Unlock()
	for _, index := range sortedKeys(pods) {
		pod := pods[index]
		if now, err := r.store.Get(pod.Namespace, pod.Name); err == nil && now.UID == pod.UID && now.Spec.NodeName == "" {
			_ = r.store.Delete(pod.Namespace, pod.Name, nil) // it can only be gone
		}
	}
}

// consumePlace gives the pods that use a placement their parts of it. acting must be held.
func (r *Registry) consumePlace(p *place) {
	r.mu.RLock()
	var list []*user
	for _, u := range r.of[p.id] {
		if u.runsOn(p.entry.object, p.node) {
			list = append(list, u)
		}
	}
	r.mu.RUnlock()
	for _, u := range list {
		if one, ok := r.holds.HoldOf(u.pod); !ok || one.From != p.id {
			r.takePart(u)
		}
	}
}

// takePart gives a pod that uses a placement its part of it. The pod may end meanwhile: the call that processes this
// returns its part, possibly before it was taken.
func (r *Registry) takePart(u *user) {
	r.holds.Consume(u.place(), u.pod, u.demand)
	r.mu.RLock()
	gone := r.users[u.pod] == nil
	r.mu.RUnlock()
	if gone {
		r.holds.ReturnPart(u.pod)
	}
}
