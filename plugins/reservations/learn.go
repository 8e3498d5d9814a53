package reservations

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/owners"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
)

// Learn takes in a Reservation as it is stored: what is held for it becomes what it is to be by its status, by the pods that use
// it, and by the time.
func (r *Registry) Learn(now *v1alpha1.Reservation) {
	r.acting.Lock()
	defer r.acting.Unlock()
	r.learn(now)
}

// relearn takes in what was written here, or the time: only the watch delivers Reservations that were not known, or are gone. It
// returns false where the entry is not that of a Reservation any more.
func (r *Registry) relearn(e *entry, now *v1alpha1.Reservation) bool {
	r.acting.Lock()
	defer r.acting.Unlock()
	if !r.current(now.Name, e) {
		return false
	}
	r.learn(now)
	return r.current(now.Name, e)
}

func (r *Registry) current(name string, e *entry) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.entries[name] == e
}

// learn does what Learn does, with acting held.
func (r *Registry) learn(now *v1alpha1.Reservation) {
	r.mu.RLock()
	known := r.entries[now.Name]
	r.mu.RUnlock()
	if known != nil && known.object.UID == now.UID && older(now, known.object) {
		return // it was written here since
	}
	ended := over(now, r.clock.Now()) != ""
	if known != nil && known.object.UID != now.UID || ended {
		r.end(now.Name)
	}
	if ended {
		return
	}
	who, err := ownersOf(now)
	if err != nil {
		klog.Background().Error(err, "Failed to read the owners of a Reservation; no pod may use it", "reservation", now.Name)
	}
	e, keep, drop, told := r.record(now, who)
	if told && r.charges != nil {
		r.charges.Recheck()
	}
	fresh := r.hold(e, keep, drop)
	r.promise(e)
	for _, p := range keep {
		r.consume(p)
		if slices.Contains(fresh, p) {
			r.charge(p) // for what no pod uses of it
		}
		if told || slices.Contains(fresh, p) {
			r.holds.NoteFreed(p.node) // pods that wait for it may use it now
		}
	}
}

// record takes in a Reservation. keep is what there is of it, drop what has to go; told: its spec differs from what was known.
func (r *Registry) record(now *v1alpha1.Reservation, who []owners.Owner) (e *entry, keep []*place, drop []hold.ID, told bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e = r.entries[now.Name]; e == nil {
		e = &entry{places: map[int32]*place{}}
		r.entries[now.Name] = e
	}
	told = e.object == nil || e.object.Generation != now.Generation
	e.object = now
	if e.template == nil {
		e.template = templateOf(now)
		e.demand = holds.DemandOf(&framework.PodInfo{Pod: e.template})
		e.refusal = sync.OnceValue(func() string { return refusal(e.template) })
	}
	wanted := map[int32]v1alpha1.ReservationPlacement{}
	for _, p := range now.Status.Placements {
		switch {
		case p.Spent:
		case r.usedUp(e, idOf(now.UID, p.Index), p):
			e.use(p.Index, p.NodeName, r.clock.Now()) // also when its user is gone
			r.work.AddAfter(now.Name, untold)
		default:
			wanted[p.Index] = p
		}
	}
	keep, drop = e.settle(wanted)
	for _, id := range drop {
		r.remove(id)
	}
	for _, p := range keep {
		r.add(p)
	}
	r.owners.Set(now.Name, who...)
	r.held.Store(int64(len(r.places)))
	return e, keep, drop, told
}

// older reports whether an object is an earlier version of another; false where they cannot be compared.
func older(a, b *v1alpha1.Reservation) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

// usedUp reports whether a placement that is used once has been: a pod has it for good. mu is held.
func (r *Registry) usedUp(e *entry, id hold.ID, p v1alpha1.ReservationPlacement) bool {
	if !reservation.Once(e.object) {
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
		if u.bound && u.node == p.NodeName {
			return true
		}
	}
	return false
}

// settle makes the places of an entry those that are wanted, by index. It returns the places that there are now, and what has to
// go.
func (e *entry) settle(wanted map[int32]v1alpha1.ReservationPlacement) (keep []*place, drop []hold.ID) {
	for _, index := range sortedKeys(e.places) {
		if p := e.places[index]; wanted[index].NodeName != p.node || cardOf(wanted[index]) != p.card {
			drop = append(drop, p.id)
			delete(e.places, index)
		}
	}
	for _, index := range sortedKeys(wanted) {
		p := e.places[index]
		if p == nil {
			p = &place{id: idOf(e.object.UID, index), entry: e, index: index, node: wanted[index].NodeName, card: cardOf(wanted[index])}
			e.places[index] = p
		}
		keep = append(keep, p)
	}
	return keep, drop
}

// hold makes the ledger hold the places of an entry, and no others. It returns those that it did not hold before. acting is held.
func (r *Registry) hold(e *entry, keep []*place, drop []hold.ID) (fresh []*place) {
	for _, id := range drop {
		r.release(id)
	}
	for _, p := range keep {
		if now, ok := r.holds.Kept(p.id); ok && now.Node == p.node {
			continue
		}
		r.holds.Keep(hold.Hold{
			ID: p.id, Holder: holderOf(e.object.UID), Node: p.node, Reason: hold.Reservation, Priority: corev1helpers.PodPriority(e.template),
			Pods: 1, Request: e.demand.Request, Ports: e.demand.Ports,
		})
		fresh = append(fresh, p)
	}
	return fresh
}

// release ends what the ledger holds for a placement.
func (r *Registry) release(id hold.ID) {
	r.holds.Drop(id)
	if r.charges != nil {
		r.charges.Charge(id, nil, "", hold.Taken{})
	}
}

// charge makes what is left of a placement count for its queue.
func (r *Registry) charge(p *place) {
	if r.charges != nil {
		r.charges.Charge(p.id, p.entry.template, p.node, r.holds.Left(p.id)[0])
	}
}

// over returns why a Reservation holds nothing any more; empty where it does, or may.
func over(now *v1alpha1.Reservation, at time.Time) string {
	switch expiry := reservation.Expiry(now); {
	case reservation.Ended(now.Status.Phase):
		return "it has ended: " + string(now.Status.Phase)
	case now.DeletionTimestamp != nil:
		return "it is being deleted"
	case !expiry.IsZero() && !at.Before(expiry):
		return "it has expired"
	}
	return ""
}

// gone takes in that a Reservation is deleted.
func (r *Registry) gone(name string) {
	r.acting.Lock()
	defer r.acting.Unlock()
	r.end(name)
}

// end gives back all that is held for a Reservation, and takes back the reserve pods that look for its places. acting is held.
func (r *Registry) end(name string) {
	r.mu.Lock()
	e := r.entries[name]
	if e == nil {
		r.mu.Unlock()
		return
	}
	delete(r.entries, name)
	r.owners.Set(name)
	_, drop := e.settle(nil)
	for _, id := range drop {
		r.remove(id)
	}
	r.held.Store(int64(len(r.places)))
	e.fail("Reservation \"" + name + "\" has ended")
	r.mu.Unlock()
	for _, id := range drop {
		r.release(id)
	}
	r.unpromise(e)
	r.withdraw(e)
}

// withdraw takes back the reserve pods that still look for a place. acting is held.
func (r *Registry) withdraw(e *entry) {
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

// consume gives the pods that use a placement their parts of it. acting is held.
func (r *Registry) consume(p *place) {
	r.mu.RLock()
	var list []*user
	for _, u := range r.of[p.id] {
		if u.bound && u.node == p.node {
			list = append(list, u)
		}
	}
	r.mu.RUnlock()
	for _, u := range list {
		if one, ok := r.holds.Of(u.pod); !ok || one.From != p.id {
			r.take(u)
		}
	}
}

// take gives a pod that uses a placement its part of it. The pod may end meanwhile: whichever call takes that in gives back what
// the pod has, and may have done so before it had anything.
func (r *Registry) take(u *user) {
	r.holds.Consume(u.place(), u.pod, u.demand)
	r.mu.RLock()
	gone := r.users[u.pod] == nil
	r.mu.RUnlock()
	if gone {
		r.holds.Return(u.pod)
	}
}
