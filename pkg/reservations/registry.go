// Package reservations owns the Reservations of a scheduler process: what the ledger holds for them, the reserve pods
// that look for their places, and which pods use what.
//
// All of it follows from the stored Reservations and pods, and from the time. So a new scheduler has what the previous
// one held before its first cycle. Reserve pods find places in their cycles; once all missing places are found, one
// write of the status records them, and only then they are held.
//
// The Reservation plugin of each profile uses it. The controller of Reservations writes the rest of their status.
package reservations

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/kube/leadership"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate/owners"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// Registry is the Reservations of a process. It is safe for concurrent use.
type Registry struct {
	clock   clock.WithTicker
	holds   *ledger.Shared
	store   *reservepods.Store
	watches *watches.Watches
	leading leadership.Signal
	// charges is told what is held.
	charges Charges

	once     sync.Once
	failed   error // the error with which once ended
	client   kubernetes.Interface
	statuses dynamic.NamespaceableResourceInterface
	nodes    corelisters.NodeLister
	// work are the names of Reservations to reconcile, toCharge those whose remaining amount has changed since queues were
	// charged.
	work     workqueue.TypedRateLimitingInterface[string]
	toCharge workqueue.TypedInterface[string]
	// rewords limits how often other words for the same reason are written.
	rewords *rate.Limiter

	// held mirrors the number of placements, and writing the number of Reservations whose placements are being written, so
	// that pods cost no lock if there are none.
	held, writing atomic.Int64

	// acting is held while the ledger and the reserve pods are adjusted to a Reservation. It is acquired before mu.
	acting sync.Mutex
	// mu guards the fields below. It is held only for lookups and arithmetic.
	mu sync.RWMutex
	// profiles are the profiles with the plugin.
	profiles map[string]profile
	entries  map[string]*entry
	// places are the placements by their ledger IDs.
	places map[hold.ID]*place
	// cards are the places on GPU cards, by node.
	cards  map[string]map[hold.ID]*place
	owners owners.Index
	// users are the pods with an allocation annotation, and those that are about to use a placement; of is the same by
	// placement.
	users map[types.UID]*user
	of    map[hold.ID]map[types.UID]*user
}

// Charges is told what is held for pods that do not exist yet: it counts as used by the queue of its template.
type Charges interface {
	// Charge sets what is left of a placement, as used by the pod's queue; nothing ends it. It is called with a lock held,
	// and must not call back.
	Charge(id hold.ID, pod *v1.Pod, node string, left hold.Taken)
	// Recheck signals that pods may now find all that they request held for them.
	Recheck()
}

// profile is a profile with the plugin.
type profile struct {
	// preempts: its reserve pods may evict others.
	preempts bool
	// yields: what its Reservations hold makes way for pods of higher priority.
	yields bool
	// gangs reports whether it places gangs.
	gangs func() bool
}

// entry is the state of a Reservation.
type entry struct {
	object *v1alpha1.Reservation
	// template is the pod of the template.
	template *v1.Pod
	// demand is what a place is sought for: the template's request, and once a search has begun, as admission changes it.
	demand ledger.Demand
	places map[int32]*place
	// promised is where missing placements are promised, by index.
	promised map[int32]string
	// unsought: no reserve pods look for missing places, nor will, until what reconcile found changes. It is guarded by
	// acting.
	unsought bool
	// pods are the reserve pods that look for places, by index.
	pods map[int32]*v1.Pod
	// priority is that of its template, if needed and known.
	priority *int32
	// used are the single-use placements that were used, by index: the status may not say so yet.
	used map[int32]use
	// attempt counts how often reserve pods were created.
	attempt int
	round   *round
	// writing: its first placements are being written.
	writing bool
	// why it has no place, as in the condition of its reserve pods.
	why string
	// worded is when reconcile last wrote why it has no place.
	worded time.Time
	// refusal is why no place is sought for it; empty if one is.
	refusal func() string
}

// place is a placement that is held.
type place struct {
	id    hold.ID
	entry *entry
	index int32
	node  string
	// demand is what was found for it.
	demand ledger.Demand
	// by is the pod that has it, if it is single-use; empty for none yet.
	by types.UID
	// card is the GPU card that it is on; negative for none.
	card int
}

// use is the node of a placement when it was used, and since when that is known.
type use struct {
	node  string
	since time.Time
}

// recordUse records that a single-use placement was used. The lock of the registry must be held.
func (e *entry) recordUse(index int32, node string, now time.Time) {
	if e.used == nil {
		e.used = map[int32]use{}
	}
	if e.used[index].node != node {
		e.used[index] = use{node: node, since: now}
	}
}

// user is a pod and the placement that it uses.
type user struct {
	reservationstate.Allocation
	pod types.UID
	// namespace is that of the pod.
	namespace string
	node      string
	demand    ledger.Demand
	// bound: it is bound to its node.
	bound bool
	// gone: it is deleted, or has ended, and its binding has to end before it is known whether it was bound.
	gone bool
}

// runsOn reports whether a pod is on the node of the placement that it says it uses, and may use it.
func (u *user) runsOn(r *v1alpha1.Reservation, node string) bool {
	return u.bound && u.node == node && reservationstate.Uses(r, u.namespace, u.pod, u.Index)
}

// place returns the ledger's ID of the placement.
func (u *user) place() hold.ID { return idOf(u.UID, u.Index) }

// New returns an empty registry.
func New(holds *ledger.Shared, store *reservepods.Store, watched *watches.Watches, leads leadership.Signal,
	charges Charges) *Registry {
	return &Registry{
		clock: clock.RealClock{}, holds: holds, store: store, watches: watched, leading: leads, charges: charges,
		profiles: map[string]profile{}, entries: map[string]*entry{}, places: map[hold.ID]*place{},
		cards: map[string]map[hold.ID]*place{}, users: map[types.UID]*user{}, of: map[hold.ID]map[types.UID]*user{},
		work: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minPause,
			maxPause)),
		toCharge: workqueue.NewTyped[string](), rewords: rate.NewLimiter(rewordQPS, rewordQPS),
	}
}

// Pauses between attempts to write a status.
const (
	minPause = 50 * time.Millisecond
	maxPause = 10 * time.Second
)

// Serve makes the registry place the Reservations of a profile. preempts: other pods may be evicted for them; yields:
// what they hold makes way for pods of higher priority. The first call begins to watch.
func (r *Registry) Serve(ctx context.Context, handle framework.Framework, preempts, yields bool) error {
	p := profile{preempts: preempts, yields: yields, gangs: func() bool { // once all plugins are made
		return slices.ContainsFunc(handle.ListPlugins().PreFilter.Enabled,
			func(p schedconfig.Plugin) bool { return p.Name == gangPlugin })
	}}
	r.mu.Lock()
	r.profiles[handle.ProfileName()] = p
	known := sortedKeys(r.entries)
	r.mu.Unlock()
	for _, name := range known {
		r.work.Add(name) // it may be this profile's
	}
	r.once.Do(func() {
		registerMetrics(r)
		r.failed = r.watch(ctx, handle)
	})
	return r.failed
}

// gangPlugin is the name of the plugin that places gangs.
const gangPlugin = "Gang"

// idOf returns the ledger's ID of a placement.
func idOf(reservation types.UID, index int32) hold.ID {
	return hold.ID(string(reservation) + "/" + strconv.Itoa(int(index)))
}

// holderOf returns the ledger's holder of the placements of a Reservation.
func holderOf(reservation types.UID) hold.Holder {
	return hold.Holder{Profile: "reservation", Group: string(reservation)}
}

// Empty reports whether nothing is held for any pod.
func (r *Registry) Empty() bool { return r.held.Load() == 0 }

// Grants returns the holders of the Reservations that a pod owns; for a reserve pod, the holder of what is promised to
// its Reservation.
func (r *Registry) Grants(pod *v1.Pod) []hold.Holder {
	if reservepods.IsReservePod(pod) {
		return r.promises(pod)
	}
	if r.Empty() {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	var holders []hold.Holder
	for _, e := range r.owned(pod) {
		holders = append(holders, holderOf(e.object.UID))
	}
	return holders
}

// Slots returns what is held for a pod, by node; if its place is decided, on that node only. The holds for which
// without returns true, except those of pods that are counted on their nodes, take nothing of a slot. A pod that asks
// for a Reservation by name gets only the slots of that one.
func (r *Registry) Slots(pod *v1.Pod, without func(hold.Hold) bool) map[string][]reservationstate.Slot {
	if r.Empty() || reservepods.IsReservePod(pod) {
		return nil
	}
	only := ""
	if at, held := r.holds.Place(pod.UID); held && at.Planned {
		only = at.Node
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	var ids []hold.ID
	slots := map[string][]reservationstate.Slot{}
	for _, e := range r.owned(pod) {
		for _, p := range e.placesOn(only) {
			ids = append(ids, p.id)
			s := reservationstate.Slot{
				ID: p.id, Holder: holderOf(e.object.UID), Node: p.node, SingleUse: reservationstate.IsSingleUse(e.object),
				Taken: p.by != "" && p.by != pod.UID, Card: p.card,
				ForMigration: e.object.Labels[v1alpha1.MigrationLabel] != "",
			}
			if e.object.Spec.AllocatePolicy == v1alpha1.AllocateRestricted {
				s.Restricted = sortedKeys(p.demand.Request)
			}
			slots[p.node] = append(slots[p.node], s)
		}
	}
	left := map[hold.ID]hold.Taken{}
	ignored := func(h hold.Hold) bool { return r.users[h.For] == nil && without(h) }
	for i, taken := range r.holds.LeftWithout(ignored, ids...) {
		left[ids[i]] = taken
	}
	for _, list := range slots {
		for i := range list {
			list[i].Left = left[list[i].ID]
		}
	}
	return slots
}

// placesOn lists the places of an entry on a node, by index; of an empty name, all.
func (e *entry) placesOn(node string) (places []*place) {
	for _, p := range e.places {
		if node == "" || p.node == node {
			places = append(places, p)
		}
	}
	slices.SortFunc(places, func(a, b *place) int { return cmp.Compare(a.index, b.index) })
	return places
}

// owned returns the entries that a pod owns, by name. mu must be held.
func (r *Registry) owned(pod *v1.Pod) (list []*entry) {
	only, named := reservationstate.NamedBy(pod)
	for _, name := range r.owners.Of(pod) {
		if !named || only == name {
			list = append(list, r.entries[name])
		}
	}
	return list
}

// Use makes a pod that is now counted on a node use a placement there. It returns false if that is no longer held
// there, or other pods have it.
func (r *Registry) Use(pod *v1.Pod, node string, id hold.ID, d ledger.Demand) bool {
	r.mu.Lock()
	p := r.places[id]
	if p == nil || p.node != node || p.by != "" && p.by != pod.UID {
		r.mu.Unlock()
		return false
	}
	if reservationstate.IsSingleUse(p.entry.object) {
		p.by = pod.UID
	}
	name := p.entry.object.Name
	r.addUser(&user{Allocation: reservationstate.Allocation{Name: name, UID: p.entry.object.UID, Index: p.index},
		pod: pod.UID, namespace: pod.Namespace, node: p.node, demand: d})
	r.mu.Unlock()
	if !r.holds.Consume(id, pod.UID, d) {
		r.Release(pod)
		return false
	}
	r.toCharge.Add(name)
	return true
}

// PodBound makes the allocation of a bound pod permanent. The watch may never report the binding of a pod that is
// deleted soon after.
func (r *Registry) PodBound(pod *v1.Pod) {
	r.mu.RLock()
	u := r.users[pod.UID]
	var now user
	if u != nil {
		now = *u
	}
	r.mu.RUnlock()
	if u == nil || now.bound {
		return
	}
	now.bound, now.gone = true, false
	r.podRuns(&now, u)
	r.mu.RLock()
	gone := u.gone
	r.mu.RUnlock()
	if gone {
		r.Release(pod)
	}
}

// addUser records that a pod uses a placement. mu must be held.
func (r *Registry) addUser(u *user) {
	r.removeUser(u.pod)
	r.users[u.pod] = u
	id := u.place()
	nested.Set(r.of, id, u.pod, u)
}

// removeUser records that a pod uses nothing. mu must be held.
func (r *Registry) removeUser(pod types.UID) *user {
	u := r.users[pod]
	if u == nil {
		return nil
	}
	delete(r.users, pod)
	id := u.place()
	nested.Delete(r.of, id, pod)
	return u
}

// Allocation returns what a pod that is counted on a node uses; false for nothing.
func (r *Registry) Allocation(pod *v1.Pod) (reservationstate.Allocation, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	u := r.users[pod.UID]
	if u == nil || r.places[u.place()] == nil {
		return reservationstate.Allocation{}, false
	}
	return u.Allocation, true
}

// Covers returns the placements that hold all that these pods request; none if they do not.
func (r *Registry) Covers(pods []*v1.Pod) []hold.ID {
	if r.Empty() {
		return nil
	}
	var ids []hold.ID
	var last *choice
	used := map[hold.ID]bool{}
	for _, pod := range pods {
		need, who := ledger.DemandOf(&framework.PodInfo{Pod: pod}).Amount(), r.Grants(pod)
		if len(who) == 0 {
			return nil
		}
		if last == nil || !slices.Equal(who, last.who) || !maps.Equal(need.Request, last.need.Request) {
			last = r.choiceOf(pods, pod, need, who) // that of a gang's members is usually the same
		}
		for len(last.rest) > 0 && used[last.rest[0]] {
			last.rest = last.rest[1:]
		}
		if len(last.rest) == 0 {
			return nil
		}
		ids = append(ids, last.rest[0])
		used[last.rest[0]] = true
	}
	return ids
}

// choice is the placements that hold all that a pod requests, the best first.
type choice struct {
	who  []hold.Holder
	need hold.Taken
	rest []hold.ID
}

// choiceOf returns the placements for one of several pods that have no nodes yet.
func (r *Registry) choiceOf(pods []*v1.Pod, pod *v1.Pod, need hold.Taken, who []hold.Holder) *choice {
	var slots []reservationstate.Slot
	waiting := sets.New[types.UID]()
	for _, pod := range pods {
		waiting.Insert(pod.UID)
	}
	for _, list := range r.Slots(pod, func(h hold.Hold) bool { return waiting.Has(h.For) }) {
		slots = append(slots, list...)
	}
	slices.SortFunc(slots, func(a, b reservationstate.Slot) int { return cmp.Compare(a.ID, b.ID) })
	c := &choice{who: who, need: need}
	for _, i := range reservationstate.Rank(need, slots) {
		if maps.Equal(slots[i].Left.Part(need).Request, need.Request) {
			c.rest = append(c.rest, slots[i].ID)
		}
	}
	return c
}

// Release makes a pod whose cycle failed, or that has ended, return what it uses; a reserve pod, its place. What a pod
// that ran has used of a single-use placement is free.
func (r *Registry) Release(pod *v1.Pod) {
	if reservepods.IsReservePod(pod) {
		r.reservePodReleased(pod)
		return
	}
	r.mu.Lock()
	u := r.removeUser(pod.UID)
	if u == nil {
		r.mu.Unlock()
		return
	}
	if p := r.places[u.place()]; p != nil && p.by == pod.UID && !u.bound {
		p.by = ""
	}
	r.mu.Unlock()
	r.holds.ReturnPart(pod.UID)
	r.toCharge.Add(u.Name)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
