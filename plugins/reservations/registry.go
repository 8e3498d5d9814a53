// Package reservations owns the Reservations of a scheduler process: what the ledger holds for
// them, the reserve pods that look for their places, and which pods use what.
//
// All of it follows from the Reservations and the pods as they are stored, and from the time. So a scheduler that begins
// has what the one before it held, before its first cycle. A place is found in the cycles of reserve pods; once all that
// are sought are found, one write of the status records them, and only after that write they are held.
//
// The Reservation plugin of each profile asks here. The controller of Reservations writes what else becomes of a
// Reservation.
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

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/workqueue"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/owners"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
	"github.com/lockstep-sh/lockstep/plugins/leading"
	"github.com/lockstep-sh/lockstep/plugins/reservepods"
	"github.com/lockstep-sh/lockstep/plugins/watches"
)

// Registry is the Reservations of a process. It is safe for concurrent use.
type Registry struct {
	clock   clock.WithTicker
	holds   *holds.Holds
	store   *reservepods.Store
	watches *watches.Watches
	leading leading.Signal
	// charges gets what is held; nil where nothing counts it.
	charges Charges

	once     sync.Once
	failed   error // the error with which once ended
	client   kubernetes.Interface
	statuses dynamic.NamespaceableResourceInterface
	nodes    corelisters.NodeLister
	// work are the names of Reservations to look at, dues those of which more or less is left than queues were charged for.
	work workqueue.TypedRateLimitingInterface[string]
	dues workqueue.TypedInterface[string]

	// held mirrors the number of placements, so that where there is none pods cost no lock.
	held atomic.Int64

	// acting is held while what there is of a Reservation is made what it should be: the ledger,
	// the reserve pods. It is taken before mu.
	acting sync.Mutex
	// mu guards what follows. It is held for look-ups and arithmetic only.
	mu sync.RWMutex
	// profiles are the profiles with the plugin.
	profiles map[string]profile
	entries  map[string]*entry
	// places has the placements by what the ledger calls them.
	places map[hold.ID]*place
	// cards are the places that are on a GPU card, by node.
	cards  map[string]map[hold.ID]*place
	owners owners.Index[string]
	// users are the pods whose annotation has a placement that they use, and those that are about to use one; of has them
	// by the placement.
	users map[types.UID]*user
	of    map[hold.ID]map[types.UID]*user
}

// Charges gets what is held for pods that are yet to come: it counts as used by the queue of its template.
type Charges interface {
	// Charge makes what is left of a placement count as used by the queue that the pod is in; an amount of nothing ends it.
	// It is called with a lock held, and must not call back.
	Charge(id hold.ID, pod *v1.Pod, node string, left hold.Taken)
	// Recheck notes that pods may find by now that all they ask for is held for them.
	Recheck()
}

// profile is one with the plugin.
type profile struct {
	// preempts: others may be evicted for its reserve pods.
	preempts bool
	// yields: what its Reservations hold makes way for pods of higher priority.
	yields bool
	// gangs reports whether it places gangs.
	gangs func() bool
}

// entry is what is known of a Reservation.
type entry struct {
	object *v1alpha1.Reservation
	// template is a pod as the template has it.
	template *v1.Pod
	demand   holds.Demand
	places   map[int32]*place
	// promised is where placements are promised that have no place yet, by index.
	promised map[int32]string
	// pods are the reserve pods that look for places, by index.
	pods map[int32]*v1.Pod
	// priority is the priority of its template, where that matters and is known.
	priority *int32
	// used are the placements that were used once, by index: the status may not say so yet.
	used map[int32]use
	// attempt counts how often reserve pods were made.
	attempt int
	round   *round
	// why it has no place, as in the condition of its reserve pods.
	why string
	// refusal returns why no place is sought for it; empty where one is.
	refusal func() string
}

// place is a placement that is held.
type place struct {
	id    hold.ID
	entry *entry
	index int32
	node  string
	// by is the pod that has it, where it is used once; empty for none yet.
	by types.UID
	// card is the GPU card that it is on; negative for none.
	card int
}

// use is where a placement was when it was used, and since when that is known.
type use struct {
	node  string
	since time.Time
}

// use notes that a placement was used that is used once. The lock of the registry is held.
func (e *entry) use(index int32, node string, now time.Time) {
	if e.used == nil {
		e.used = map[int32]use{}
	}
	if e.used[index].node != node {
		e.used[index] = use{node: node, since: now}
	}
}

// user is a pod and the placement that it uses.
type user struct {
	reservation.Allocation
	pod    types.UID
	node   string
	demand holds.Demand
	// bound: it is on its node for good.
	bound bool
	// gone: it is deleted, or has ended, and whether it was bound before is known only when its binding has ended.
	gone bool
}

// place returns what the ledger calls the placement.
func (u *user) place() hold.ID { return idOf(u.UID, u.Index) }

// New makes a registry without Reservations. charges may be nil.
func New(ledger *holds.Holds, store *reservepods.Store, watched *watches.Watches, leads leading.Signal, charges Charges) *Registry {
	r := &Registry{
		clock: clock.RealClock{}, holds: ledger, store: store, watches: watched, leading: leads, charges: charges,
		profiles: map[string]profile{}, entries: map[string]*entry{}, places: map[hold.ID]*place{}, cards: map[string]map[hold.ID]*place{}, users: map[types.UID]*user{}, of: map[hold.ID]map[types.UID]*user{},
		work: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minPause, maxPause)),
		dues: workqueue.NewTyped[string](),
	}
	store.Observe(r.observe)
	return r
}

// Pauses between attempts to write a status.
const (
	minPause = 50 * time.Millisecond
	maxPause = 10 * time.Second
)

// Serve makes the registry place the Reservations of a profile. preempts: other pods may be evicted for them; yields: what
// they hold makes way for pods of higher priority. It begins to watch with the first profile.
func (r *Registry) Serve(ctx context.Context, handle fwk.Handle, preempts, yields bool) error {
	p := profile{preempts: preempts, yields: yields, gangs: func() bool { return true }}
	if fw, ok := handle.(framework.Framework); ok {
		p.gangs = func() bool { // once all plugins are made
			return slices.ContainsFunc(fw.ListPlugins().PreFilter.Enabled, func(p schedconfig.Plugin) bool { return p.Name == gangPlugin })
		}
	}
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

// idOf returns what the ledger calls a placement.
func idOf(reservation types.UID, index int32) hold.ID {
	return hold.ID(string(reservation) + "/" + strconv.Itoa(int(index)))
}

// holderOf returns the holder of the placements of a Reservation in the ledger.
func holderOf(reservation types.UID) hold.Holder {
	return hold.Holder{Profile: "reservation", Group: string(reservation)}
}

// Empty reports whether nothing is held for any pod.
func (r *Registry) Empty() bool { return r.held.Load() == 0 }

// Grants returns the holders of the Reservations that a pod owns; for a reserve pod, the holder of what is promised to its
// Reservation.
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

// Seats returns what is held for a pod, by node; where its place is decided, on that node alone. A pod that asks for a
// Reservation by name gets the seats of that alone.
func (r *Registry) Seats(pod *v1.Pod) map[string][]reservation.Seat {
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
	seats := map[string][]reservation.Seat{}
	for _, e := range r.owned(pod) {
		for _, p := range e.on(only) {
			ids = append(ids, p.id)
			s := reservation.Seat{
				ID: p.id, Holder: holderOf(e.object.UID), Node: p.node, Once: reservation.Once(e.object), Taken: p.by != "" && p.by != pod.UID, Card: p.card,
				Meant: e.object.Labels[v1alpha1.MigrationLabel] != "",
			}
			if e.object.Spec.AllocatePolicy == v1alpha1.AllocateRestricted {
				s.Restricted = sortedKeys(e.demand.Request)
			}
			seats[p.node] = append(seats[p.node], s)
		}
	}
	left := map[hold.ID]hold.Taken{}
	for i, taken := range r.holds.Left(ids...) {
		left[ids[i]] = taken
	}
	for _, list := range seats {
		for i := range list {
			list[i].Left = left[list[i].ID]
		}
	}
	return seats
}

// on lists the places of an entry on a node, by index; of an empty name, all.
func (e *entry) on(node string) (places []*place) {
	for _, p := range e.places {
		if node == "" || p.node == node {
			places = append(places, p)
		}
	}
	slices.SortFunc(places, func(a, b *place) int { return cmp.Compare(a.index, b.index) })
	return places
}

// owned returns the entries that a pod owns, by name. mu is held.
func (r *Registry) owned(pod *v1.Pod) (list []*entry) {
	only, named := pod.Annotations[v1alpha1.ReservationAnnotation]
	for _, name := range r.owners.Of(pod) {
		if !named || only == name {
			list = append(list, r.entries[name])
		}
	}
	return list
}

// Missing returns why a pod cannot use the Reservation that it asks for by name; empty if it can, or asks for none.
func (r *Registry) Missing(pod *v1.Pod) string {
	name, named := pod.Annotations[v1alpha1.ReservationAnnotation]
	if !named || reservepods.IsReservePod(pod) {
		return ""
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	e := r.entries[name]
	asks := "annotation " + v1alpha1.ReservationAnnotation + " asks for Reservation \"" + name + "\""
	switch {
	case e == nil:
		return asks + ", which does not exist or has ended"
	case !slices.Contains(r.owners.Of(pod), name):
		return asks + ", of whose owners the pod is none: see its spec.owners"
	case len(e.places) == 0 && len(e.object.Status.Placements) > 0:
		return asks + ", of which all has been used"
	case len(e.places) == 0:
		return asks + ", which holds nothing yet: see its condition Scheduled"
	}
	return ""
}

// Take makes a pod that is counted on a node from now on use a placement there. It returns false where that is not held
// there any more, or another pod has it.
func (r *Registry) Take(pod *v1.Pod, node string, id hold.ID, d holds.Demand) bool {
	r.mu.Lock()
	p := r.places[id]
	if p == nil || p.node != node || p.by != "" && p.by != pod.UID {
		r.mu.Unlock()
		return false
	}
	if reservation.Once(p.entry.object) {
		p.by = pod.UID
	}
	name := p.entry.object.Name
	r.note(&user{Allocation: reservation.Allocation{Name: name, UID: p.entry.object.UID, Index: p.index}, pod: pod.UID, node: p.node, demand: d})
	r.mu.Unlock()
	r.holds.Consume(id, pod.UID, d)
	r.dues.Add(name)
	return true
}

// Bound makes a pod that took a placement use it for good: it was bound. The watch may never deliver that of a pod that is
// deleted soon after.
func (r *Registry) Bound(pod *v1.Pod) {
	r.mu.RLock()
	u := r.users[pod.UID]
	r.mu.RUnlock()
	if u == nil || u.bound {
		return
	}
	r.runs(&user{Allocation: u.Allocation, pod: u.pod, node: u.node, demand: u.demand, bound: true}, u)
	r.mu.RLock()
	gone := u.gone
	r.mu.RUnlock()
	if gone {
		r.Return(pod)
	}
}

// note takes in that a pod uses a placement. mu is held.
func (r *Registry) note(u *user) {
	r.forget(u.pod)
	r.users[u.pod] = u
	id := u.place()
	if r.of[id] == nil {
		r.of[id] = map[types.UID]*user{}
	}
	r.of[id][u.pod] = u
}

// forget takes in that a pod uses nothing. mu is held.
func (r *Registry) forget(pod types.UID) *user {
	u := r.users[pod]
	if u == nil {
		return nil
	}
	delete(r.users, pod)
	id := u.place()
	if delete(r.of[id], pod); len(r.of[id]) == 0 {
		delete(r.of, id)
	}
	return u
}

// Allocation returns what a pod uses that is counted on a node; false for nothing.
func (r *Registry) Allocation(pod *v1.Pod) (reservation.Allocation, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	u := r.users[pod.UID]
	if u == nil || r.places[u.place()] == nil {
		return reservation.Allocation{}, false
	}
	return u.Allocation, true
}

// Covers returns the placements in which all that these pods ask for is held for them; none where not all of it is.
func (r *Registry) Covers(pods []*v1.Pod) []hold.ID {
	if r.Empty() {
		return nil
	}
	var ids []hold.ID
	var last *choice
	used := map[hold.ID]bool{}
	for _, pod := range pods {
		need, who := holds.DemandOf(&framework.PodInfo{Pod: pod}).Amount(), r.Grants(pod)
		if len(who) == 0 {
			return nil
		}
		if last == nil || !slices.Equal(who, last.who) || !maps.Equal(need.Request, last.need.Request) {
			last = r.choiceOf(pod, need, who) // that of a gang's members is mostly the same
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

// choice is the placements that hold all that a pod asks for, the best first.
type choice struct {
	who  []hold.Holder
	need hold.Taken
	rest []hold.ID
}

func (r *Registry) choiceOf(pod *v1.Pod, need hold.Taken, who []hold.Holder) *choice {
	var seats []reservation.Seat
	for _, list := range r.Seats(pod) {
		seats = append(seats, list...)
	}
	slices.SortFunc(seats, func(a, b reservation.Seat) int { return cmp.Compare(a.ID, b.ID) })
	c := &choice{who: who, need: need}
	for _, i := range reservation.Rank(need, seats) {
		if maps.Equal(seats[i].Left.Part(need).Request, need.Request) {
			c.rest = append(c.rest, seats[i].ID)
		}
	}
	return c
}

// Return makes a pod that came to nothing, or has ended, give back what it uses; a reserve pod, its place. What a pod that
// ran used, and what is not to be used again, is free.
func (r *Registry) Return(pod *v1.Pod) {
	if reservepods.IsReservePod(pod) {
		r.abandon(pod)
		return
	}
	r.mu.Lock()
	u := r.forget(pod.UID)
	if u == nil {
		r.mu.Unlock()
		return
	}
	if p := r.places[u.place()]; p != nil && p.by == pod.UID && !u.bound {
		p.by = ""
	}
	r.mu.Unlock()
	r.holds.Return(pod.UID)
	r.dues.Add(u.Name)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
