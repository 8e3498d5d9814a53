package invariant

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// Reserved is what matters of a Reservation.
type Reserved struct {
	Name string
	UID  types.UID
	// Version is its resource version: those of all objects are in the order in which they were stored.
	Version string
	// Priority is the priority of its template.
	Priority int32
	// Once: each placement is used once. Restricted: owners get no more than is reserved.
	Once, Restricted bool
	// Namespace and Labels are those of its owners, Gang is their gang as "namespace/name", Controller and Pod are UIDs;
	// empty for any.
	Namespace, Gang string
	Labels          map[string]string
	Controller, Pod types.UID
	// ForMove: it was made for a plan, or for a migration.
	ForMove bool
	// Ends is when it holds nothing any more; zero for never.
	Ends       time.Time
	Phase      string
	Placements []Placement
	Owners     int
}

// identity is what decides of which Reservations a pod is an owner.
type identity struct {
	namespace, gang string
	uid, controller types.UID
	labels          map[string]string
}

func identityOf(p *v1.Pod) identity {
	one := identity{namespace: p.Namespace, gang: gangKey(p), uid: p.UID, labels: p.Labels}
	if controller := metav1.GetControllerOfNoCopy(p); controller != nil {
		one.controller = controller.UID
	}
	return one
}

// owned reports whether a pod is one of its owners.
func (r *Reserved) owned(by identity) bool {
	return r.Namespace == by.namespace && (r.Gang == "" || r.Gang == by.gang) && contains(by.labels, r.Labels) &&
		(r.Controller == "" || r.Controller == by.controller) && (r.Pod == "" || r.Pod == by.uid)
}

// Placement is what is held on one node.
type Placement struct {
	Index                  int
	Node                   string
	Allocatable, Allocated v1.ResourceList
	Spent                  bool
}

// over reports whether it holds nothing any more. Clocks and calls may be a second apart.
func (r *Reserved) over(now time.Time) bool {
	return r.Phase == "Failed" || r.Phase == "Succeeded" || !r.Ends.IsZero() && now.Add(time.Second).After(r.Ends)
}

// use is which placement a pod uses.
type use struct {
	UID   types.UID `json:"uid"`
	Index int       `json:"index"`
}

// useOf returns what a pod uses, from its annotation; false for nothing.
func useOf(p *v1.Pod) (u use, ok bool) {
	value, ok := p.Annotations[keyAllocated]
	return u, ok && json.Unmarshal([]byte(value), &u) == nil && u.UID != ""
}

// promises judges what is held by Reservations. Pods and Reservations come by two watches, which may be seconds
// apart; so changes are taken in the order of their versions, once both watches have come that far.
type promises struct {
	pending      []stored
	pods         map[types.UID]*claimant
	reservations map[types.UID]*Reserved
	// used are the pods that were ever bound to a placement, by name.
	used map[use]map[types.UID]*claimant
	// seen is how far each watch has come.
	podsSeen, reservationsSeen uint64
	over                       map[string]bool
	past                       map[string]*history
}

// stored is a pod or a Reservation at a version.
type stored struct {
	version     uint64
	at          moment
	pod         *v1.Pod
	reservation *Reserved
	gone        bool
}

// claimant is a pod, as far as nodes and Reservations are concerned.
type claimant struct {
	name, node string
	requests   amounts
	ended      bool
	uses       bool
	use        use
}

func newPromises() promises {
	return promises{
		pods: map[types.UID]*claimant{}, reservations: map[types.UID]*Reserved{}, used: map[use]map[types.UID]*claimant{},
		over: map[string]bool{}, past: map[string]*history{},
	}
}

func versionOf(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64) // a pod that was made up has none, and comes first
	return n
}

// claim takes in a pod, for later.
func (c *Checker) claim(p *v1.Pod, gone bool) {
	if !c.config.Reservations {
		return
	}
	version := versionOf(p.ResourceVersion)
	c.promises.podsSeen = max(c.promises.podsSeen, version)
	c.promises.pending = append(c.promises.pending, stored{version: version, at: c.moment(), pod: p, gone: gone})
}

// ReservationSeen is one that was created or changed, ReservationGone one that is no more, as last seen.
type (
	ReservationSeen struct{ Reserved Reserved }
	ReservationGone struct{ Reserved Reserved }
)

func (o ReservationSeen) apply(c *Checker) { c.reserve(o.Reserved, false) }
func (o ReservationGone) apply(c *Checker) { c.reserve(o.Reserved, true) }

// vanished takes in that pods went while no watch saw them: since when is not known, and it is as soon as may be.
func (c *Checker) vanished(there map[types.UID]bool) {
	last := map[types.UID]stored{}
	for uid := range c.promises.pods {
		last[uid] = stored{pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}}
	}
	for _, one := range c.promises.pending {
		if one.pod != nil {
			last[one.pod.UID] = one
		}
	}
	for uid, one := range last {
		if !there[uid] {
			one.gone, one.at = true, c.moment()
			c.promises.pending = append(c.promises.pending, one)
		}
	}
}

func (c *Checker) reserve(r Reserved, gone bool) {
	version := versionOf(r.Version)
	c.promises.reservationsSeen = max(c.promises.reservationsSeen, version)
	c.promises.pending = append(c.promises.pending, stored{version: version, at: c.moment(), reservation: &r, gone: gone})
}

// settleAfter is how long, in healthy time, a change waits for the other watch, which may have nothing to deliver.
const settleAfter = 5 * time.Second

// settle takes in, in order, what is certain to have nothing unknown before it; or everything.
func (c *Checker) settle(all bool) {
	p := &c.promises
	if len(p.pending) == 0 {
		return
	}
	slices.SortStableFunc(p.pending, func(a, b stored) int { return cmp.Compare(a.version, b.version) })
	certain, n := min(p.podsSeen, p.reservationsSeen), 0
	for i, one := range p.pending {
		if all || one.version <= certain || c.since(one.at) > settleAfter {
			n = i + 1
		}
	}
	for _, one := range p.pending[:n] {
		if one.pod != nil {
			c.settlePod(one)
		} else {
			c.settleReservation(one)
		}
	}
	p.pending = slices.Delete(p.pending, 0, n)
}

func (c *Checker) settlePod(one stored) {
	p, uid := &c.promises, one.pod.UID
	known := p.pods[uid]
	if one.gone {
		if known != nil {
			known.ended = true
			delete(p.pods, uid)
			c.judgePromises(known.node, one.at.at)
		}
		return
	}
	if known == nil {
		known = &claimant{name: one.pod.Namespace + "/" + one.pod.Name, requests: requestsOf(one.pod)}
		p.pods[uid] = known
	}
	bound := known.node == "" && one.pod.Spec.NodeName != ""
	known.node = one.pod.Spec.NodeName
	known.ended = podutil.IsPodTerminal(one.pod)
	if bound {
		c.promised(known.node, "pod %s bound", known.name)
		if known.use, known.uses = useOf(one.pod); known.uses {
			c.counts.Uses++
			c.useBy(known, one.pod)
		}
	}
	c.judgePromises(known.node, one.at.at)
}

// useBy takes in that a pod uses a placement from now on.
func (c *Checker) useBy(by *claimant, pod *v1.Pod) {
	p := &c.promises
	users := p.used[by.use]
	if users == nil {
		users = map[types.UID]*claimant{}
		p.used[by.use] = users
	}
	users[pod.UID] = by
	r := p.reservations[by.use.UID]
	if r == nil {
		return // it has ended meanwhile
	}
	c.promised(by.node, "pod %s uses %d of Reservation %s", by.name, by.use.Index, r.Name)
	if !r.owned(identityOf(pod)) {
		c.violate(Promised, "Reservation "+r.Name, by.name, *p.past[by.node], "pod %s uses it, and is none of its owners", by.name)
	}
	if named := pod.Annotations[keyReservation]; named != "" && named != r.Name {
		c.violate(Promised, "Reservation "+r.Name, by.name, *p.past[by.node], "pod %s uses it, and wants Reservation %s", by.name, named)
	}
	asked := amounts{}
	for _, user := range users {
		if user != by && r.Once && user.node == by.node {
			c.violate(Promised, "Reservation "+r.Name, fmt.Sprint(by.use.Index), *p.past[by.node], "placement %d is used once, and pods %s and %s did", by.use.Index, user.name, by.name)
		}
		if !user.ended && user.node == by.node {
			asked.add(user.requests, 1)
		}
	}
	for _, one := range r.Placements {
		if !r.Restricted || one.Index != by.use.Index || one.Node != by.node {
			continue
		}
		for name, has := range amountsOf(one.Allocatable) {
			if asked[name] > has {
				c.violate(Promised, "Reservation "+r.Name, fmt.Sprint(by.use.Index, name), *p.past[by.node], "it is Restricted to %s %s, and its pods ask for %s: %s was the last",
					amountText(name, has), name, amountText(name, asked[name]), by.name)
			}
		}
	}
}

func contains(labels, all map[string]string) bool {
	for key, value := range all {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (c *Checker) settleReservation(one stored) {
	p, r := &c.promises, one.reservation
	touched := map[string]bool{}
	if known := p.reservations[r.UID]; known != nil {
		for _, at := range known.Placements {
			touched[at.Node] = true
		}
	} else {
		c.counts.Reservations++
	}
	if one.gone {
		delete(p.reservations, r.UID)
	} else {
		p.reservations[r.UID] = r
	}
	for _, at := range r.Placements {
		touched[at.Node] = true
		c.reservedFor(r, at.Node)
	}
	for _, node := range slices.Sorted(maps.Keys(touched)) {
		c.promised(node, "Reservation %s is %s%s", r.Name, r.Phase, map[bool]string{true: ", and gone"}[one.gone])
		c.judgePromises(node, one.at.at)
	}
	if n := len(r.Placements); n > 0 && !one.gone {
		c.counts.Placements = max(c.counts.Placements, p.placements(one.at.at))
	}
}

// placements counts those that hold something.
func (p *promises) placements(now time.Time) (n int) {
	for _, r := range p.reservations {
		if r.over(now) {
			continue
		}
		for _, at := range r.Placements {
			if !p.spent(r, at) {
				n++
			}
		}
	}
	return n
}

// spent reports whether a placement was used that is used once.
func (p *promises) spent(r *Reserved, at Placement) bool {
	if at.Spent {
		return true
	}
	for _, user := range p.used[use{r.UID, at.Index}] {
		if r.Once && user.node == at.Node {
			return true
		}
	}
	return false
}

// left returns what a placement holds beyond what its users ask for.
func (p *promises) left(r *Reserved, at Placement) amounts {
	if p.spent(r, at) {
		return nil
	}
	rest := amountsOf(at.Allocatable)
	for _, user := range p.used[use{r.UID, at.Index}] {
		if !user.ended && user.node == at.Node {
			rest.add(user.requests, -1)
		}
	}
	for name := range rest {
		rest[name] = max(0, rest[name])
	}
	return rest
}
