package invariant

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Reserved is what matters of a Reservation.
type Reserved struct {
	Name string
	UID  types.UID
	// Version is its resource version: those of all objects are in the order in which they were stored.
	Version string
	// Priority is that of its template.
	Priority int32
	// Once: each placement is used once. Restricted: owners get no more than is reserved.
	Once, Restricted bool
	// Namespace and Labels are those of its owners, Gang is theirs as "namespace/name", Controller and Pod are UIDs;
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

// identity is by what a pod is known as an owner of Reservations.
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

// useOf is what a pod says it uses; false for nothing.
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

// ReservationsListed is all of them, after a watch was cut, or at the begin.
type ReservationsListed struct{ Reservations []Reserved }

func (o ReservationSeen) apply(c *Checker) { c.reserve(o.Reserved, false) }
func (o ReservationGone) apply(c *Checker) { c.reserve(o.Reserved, true) }

func (o ReservationsListed) apply(c *Checker) {
	there := map[types.UID]bool{}
	for _, r := range o.Reservations {
		there[r.UID] = true
		c.reserve(r, false)
	}
	known := maps.Clone(c.promises.reservations)
	for _, one := range c.promises.pending {
		if one.reservation != nil {
			known[one.reservation.UID] = one.reservation
		}
	}
	for uid, r := range known {
		if !there[uid] {
			c.reserve(*r, true) // since when is not known: as soon as may be
		}
	}
}

// vanished takes in that pods went while nobody watched: since when is not known, and it is as soon as may be.
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

// settleAfter is how long, in healthy time, a change waits for the other watch, which may have nothing to tell.
const settleAfter = 5 * time.Second

// settle takes in, in order, what is certain to have nothing before it that is not known; or everything.
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
	known.ended = one.pod.Status.Phase == v1.PodSucceeded || one.pod.Status.Phase == v1.PodFailed
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

// left is what a placement holds beyond what its users ask for.
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

// judgePromises checks that what runs on a node, and what is held there for others, is no more than it has.
func (c *Checker) judgePromises(name string, now time.Time) {
	n := c.nodes[name]
	if n == nil || n.gone {
		return
	}
	p := &c.promises
	sum, held := amounts{}, amounts{}
	for _, pod := range p.pods {
		if pod.node == name && !pod.ended {
			sum.add(pod.requests, 1)
		}
	}
	var whose []string
	for _, r := range p.reservations {
		for _, at := range r.Placements {
			if at.Node == name && !r.over(now) {
				if left := p.left(r, at); len(left) > 0 {
					held.add(left, 1)
					whose = append(whose, r.Name)
				}
			}
		}
	}
	sum.add(held, 1)
	var over []string
	for _, resource := range slices.Sorted(maps.Keys(held)) {
		if has := n.allocatable[resource]; held[resource] > 0 && sum[resource] > has {
			over = append(over, fmt.Sprintf("%s %s, %s of it held, of %s", amountText(resource, sum[resource]), resource, amountText(resource, held[resource]), amountText(resource, has)))
		}
	}
	if len(over) > 0 && !p.over[name] {
		slices.Sort(whose)
		c.violate(Promised, "node "+name, now.Format(stamp), *c.pastOf(name), "its pods and Reservations %s ask for %s", strings.Join(whose, ", "), strings.Join(over, "; "))
	}
	p.over[name] = len(over) > 0
}

// promised notes what happens to what is held on a node.
func (c *Checker) promised(node, format string, args ...any) {
	c.note(c.pastOf(node), "held on "+node, format, args...)
}

func (c *Checker) pastOf(node string) *history {
	if c.promises.past[node] == nil {
		c.promises.past[node] = &history{}
	}
	return c.promises.past[node]
}

// standing reports whether any Reservation may hold something, or come to.
func (c *Checker) standing() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(c.promises.reservations)), func(r *Reserved) bool { return !r.over(c.now) })
}

// HeldPlacements returns how many placements of Reservations hold something.
func (c *Checker) HeldPlacements() int {
	c.settle(true)
	return c.promises.placements(c.now)
}

// endsWithin is how long after its end a Reservation may be said to stand.
const endsWithin = 5 * time.Second

// CheckReservations checks that the status of all Reservations says what pods do, that those which have run out have
// ended, and that no pod in no gang waits beside what is held for it. held is how many placements the leading scheduler
// says it holds; negative if that is not known. It is for a cluster in which nothing happens any more.
func (c *Checker) CheckReservations(held int) {
	c.settle(true)
	p := &c.promises
	for _, r := range slices.SortedFunc(maps.Values(p.reservations), func(a, b *Reserved) int { return cmp.Compare(a.Name, b.Name) }) {
		object := "Reservation " + r.Name
		switch {
		case r.Phase == "Failed" || r.Phase == "Succeeded":
			continue
		case !r.Ends.IsZero() && c.now.Sub(r.Ends) > endsWithin:
			c.violate(LeftOver, object, "", nil, "it is %s, and has run out at %s", r.Phase, r.Ends.Format(stamp))
			continue
		}
		owners := 0
		for _, at := range r.Placements {
			asked := amounts{}
			for _, user := range p.used[use{r.UID, at.Index}] {
				if !user.ended && user.node == at.Node {
					owners++
					asked.add(user.requests, 1)
				}
			}
			has, says := amountsOf(at.Allocatable), amountsOf(at.Allocated)
			for name := range has {
				if want := min(has[name], asked[name]); says[name] != want {
					c.violate(StatusLies, object, fmt.Sprint(at.Index, name), *c.pastOf(at.Node), "placement %d says that %s %s is used, and its pods use %s",
						at.Index, amountText(name, says[name]), name, amountText(name, want))
				}
			}
			c.judgeOwnersOf(r, at)
		}
		if owners != r.Owners {
			c.violate(StatusLies, object, "owners", nil, "it says that %d pods use it, and %d do", r.Owners, owners)
		}
	}
	if want := p.placements(c.now); held >= 0 && held != want {
		c.violate(StatusLies, "the scheduler", "placements", nil, "it holds %d placements of Reservations, and their status says %d", held, want)
	}
}

// judgeOwnersOf checks that no pod waits that could use a placement.
func (c *Checker) judgeOwnersOf(r *Reserved, at Placement) {
	n := c.nodes[at.Node]
	if n == nil || n.gone || n.cordoned || r.Phase != "Available" {
		return
	}
	left := c.promises.left(r, at)
	for _, waits := range c.pods {
		if !waits.pending() || !waits.gang.single || !r.owned(waits.identity) {
			continue
		}
		fits := len(left) > 0
		for name, asked := range waits.requests {
			if has, reserved := left[name]; reserved && asked > has || !reserved && asked > n.allocatable[name]-n.used[name] {
				fits = false
			}
		}
		if fits && (waits.wants == "" || waits.wants == r.Name) {
			c.violate(FreeRoom, "pod "+waits.name, r.Name, *c.pastOf(at.Node), "it waits, and Reservation %s holds what it asks for on %s", r.Name, at.Node)
		}
	}
}
