package gangstate

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// Attempt is what a plan has to place. It is a copy: the state may move on while the plan is made,
// and Planned copes with that.
type Attempt struct {
	Group  string
	Rank   turns.Rank
	Leader types.UID
	Strict bool
	Gangs  []Need
	// PreemptionDelay is how long no pod is evicted for it from Missed on, when it first did not fit;
	// Missed is zero if it has not been tried before.
	PreemptionDelay time.Duration
	Missed          time.Time
	// Outstanding is what gangs outside the group that began before have still to take, if a gang of it has a
	// Floor.
	Outstanding []Outstanding
	// Fresh is what the attempt would be if the group held nothing that plans gave it; nil if the group is Strict or holds
	// nothing such. The group keeps what it got, and waits for the rest. That may be in a domain without more room, or on
	// nodes that its other members need, while there is room for all of it elsewhere. So an attempt that fails is followed
	// by this one. The group gives back what it held only if this one is complete, or if a place that it held is lost.
	Fresh *Attempt
}

// SinglePodAttempt returns the attempt to place one pod alone, of the gang of a need; without a key, of none.
func SinglePodAttempt(pod *v1.Pod, need Need) *Attempt {
	need.Min, need.MinByRole, need.Pending = 1, nil, []*v1.Pod{pod}
	return &Attempt{Group: hold.SinglePod(pod.UID), Leader: pod.UID, Strict: true, Gangs: []Need{need}}
}

// EvictsIn returns how long it is until pods may be evicted for an attempt that does not fit; not positive if they may
// be.
func (a *Attempt) EvictsIn(now time.Time) time.Duration {
	if a.Missed.IsZero() {
		return a.PreemptionDelay
	}
	return a.Missed.Add(a.PreemptionDelay).Sub(now)
}

// evictsNone reports whether no pod may be evicted now for an attempt that does not fit, whatever its members say
// themselves.
func (a *Attempt) evictsNone(now time.Time) bool {
	return a.EvictsIn(now) > 0 || slices.ContainsFunc(a.Gangs, func(need Need) bool { return need.Spec.NeverPreempts })
}

// Members counts what has to be placed at least.
func (a *Attempt) Members() int {
	n := 0
	for _, need := range a.Gangs {
		n += need.Min
	}
	return n
}

// Outranks returns those of some groups that come after that of the attempt, which is own, the last first. They are
// ordered by: 1. queues, which compares the queues of two groups; 2. rank; 3. profile.
func (a *Attempt) Outranks(own hold.Holder, groups map[hold.Holder]turns.Rank,
	queues func(a, b hold.Holder) int) (after []hold.Holder) {
	ranks := maps.Clone(groups)
	ranks[own] = a.Rank // the group may have another one by now
	compare := func(one, other hold.Holder) int {
		return cmp.Or(queues(one, other), ranks[one].Compare(ranks[other]), one.Compare(other))
	}
	for holder := range groups {
		if compare(own, holder) < 0 {
			after = append(after, holder)
		}
	}
	slices.SortFunc(after, func(one, other hold.Holder) int { return compare(other, one) })
	return after
}

// Shared returns the topology that has to have all gangs in one domain together; empty for none.
// All of them have to ask for it.
func (a *Attempt) Shared() string {
	key := a.Gangs[0].Spec.RequiredTopology
	for _, need := range a.Gangs {
		if !need.Spec.Layout.Shared || need.Spec.RequiredTopology != key {
			return ""
		}
	}
	return key
}

// Priority returns the highest of the pending members: the attempt ranks by it.
func (a *Attempt) Priority() int32 {
	priority := int32(math.MinInt32)
	for _, pod := range a.Pending() {
		priority = max(priority, corev1helpers.PodPriority(pod))
	}
	return priority
}

// Pending returns the pending members of all gangs.
func (a *Attempt) Pending() (pods []*v1.Pod) {
	for _, need := range a.Gangs {
		pods = append(pods, need.Pending...)
	}
	return pods
}

// Without returns what is left of an attempt once some members were given a node: these stand in
// the plan.
func (a *Attempt) Without(placed map[types.UID]string) *Attempt {
	if len(placed) == 0 {
		return a
	}
	left := *a
	left.Gangs = nil
	for _, need := range a.Gangs {
		rest := need
		rest.Pending, rest.Placed, rest.MinByRole = nil, slices.Clone(need.Placed), maps.Clone(need.MinByRole)
		for _, pod := range need.Pending {
			node, ok := placed[pod.UID]
			if !ok {
				rest.Pending = append(rest.Pending, pod)
				continue
			}
			rest.Placed = append(rest.Placed, Placed{Pod: pod, Node: node, InPlan: true})
			rest.Min = max(0, rest.Min-1)
			if role := pod.Labels[v1alpha1.RoleLabel]; rest.MinByRole[role] > 0 {
				rest.MinByRole[role]--
			}
		}
		left.Gangs = append(left.Gangs, rest)
	}
	return &left
}

// OnlyMinimum returns the attempt without the members that its gangs need not have: those that follow the minimum in
// order.
func (a *Attempt) OnlyMinimum() *Attempt {
	least := *a
	least.Gangs = slices.Clone(a.Gangs)
	for i := range least.Gangs {
		need := &least.Gangs[i]
		need.Pending = firstMembers(need.Pending, need.Min, need.MinByRole)
	}
	return &least
}

// Need is one gang of an attempt.
type Need struct {
	Key  gangspec.Key
	Spec gangspec.Spec
	// Queue is the queue that the gang's PodGroup names; empty for none.
	Queue string
	// Min members are still to be placed, among them MinByRole of each role.
	Min       int
	MinByRole map[string]int
	// Floor is what its PodGroup wants free for it in all, including what its members have and
	// take, besides what is Outstanding; nil for nothing, and if it runs already.
	Floor resource.Vector
	// Pending are the members that may be placed, in order.
	Pending []*v1.Pod
	// Placed are the members that have a node, by its name, in order. Those that
	// are on their way out do not count.
	Placed []Placed
	// Ranks are the numbers of all members by which they are laid out. Ranked: they carry these;
	// otherwise they were given them in order, and a member that replaces another one does not
	// have its number.
	Ranks  map[types.UID]int
	Ranked bool
}

// Placed is a member that has a node.
type Placed struct {
	Pod  *v1.Pod
	Node string
	// InPlan: only the plan gives it the node; the scheduler's cache does not know.
	InPlan bool
	// Number is its place in order among the members that run, from 1; 0 if unknown.
	Number int
}

func (s *Gangs) attempt(grp *group) *Attempt {
	grp.visited, grp.tried = true, true
	a := grp.newAttempt()
	a.PreemptionDelay, a.Missed = grp.preemptionDelay(), grp.missed()
	if grp.yields() {
		a.Outstanding = s.outstanding(grp, a.Priority())
	}
	if a.Shared() == "" {
		s.reportScope(grp)
	}
	if !grp.strict() && grp.waiting(Planned) > 0 {
		fresh := *a
		fresh.Gangs, a.Fresh = grp.needs(true), &fresh
	}
	return a
}

func (g *group) newAttempt() *Attempt {
	return &Attempt{Group: g.key().String(), Rank: g.rankOf(), Leader: g.leader, Strict: g.strict(), Gangs: g.needs(false)}
}

// needs returns what the gangs of a group want; fresh: if they held nothing that plans gave them.
func (g *group) needs(fresh bool) (needs []Need) {
	for _, gang := range g.gangs {
		needs = append(needs, gang.wants(fresh && !gang.hasStarted() && gang.byState[Planned].N > 0))
	}
	return needs
}

// Waiting returns what would be tried of each group that has all its members and no place, in order of rank. Unlike an
// attempt of a cycle it changes nothing.
func (s *Gangs) Waiting() []*Attempt {
	var groups []*group
	for key, g := range s.gangs {
		if grp := g.group; grp.key() == key && (grp.phase == inTurn || grp.phase == awaiting) && grp.need() > 0 {
			groups = append(groups, grp)
		}
	}
	slices.SortFunc(groups, compareRank)
	var list []*Attempt
	for _, grp := range groups {
		a := grp.newAttempt()
		if leader := grp.pickLeader(); leader != nil {
			a.Leader = cmp.Or(a.Leader, leader.pod.UID)
		}
		list = append(list, a)
	}
	return list
}

// isOf reports whether an attempt was made for the group as it is now.
func (g *group) isOf(a *Attempt) bool {
	return slices.EqualFunc(g.gangs, a.Gangs, func(gang *gang, need Need) bool { return gang.key == need.Key })
}

// wants returns what an attempt has to know of a gang; fresh: if nothing were planned of it, which has not started.
func (g *gang) wants(fresh bool) Need {
	n := Need{Key: g.key, Spec: g.spec, Queue: g.objects.Facts().Queue, Placed: g.places(func(m *member) bool {
		return m.placed() && !(fresh && m.state == Planned)
	})}
	have := g.have()
	if fresh {
		have = have.Minus(g.byState[Planned])
	}
	if !g.hasStarted() {
		n.Floor, n.Min = g.spec.MinResources, have.Short(&g.spec)
	}
	if n.Min > 0 || fresh {
		n.MinByRole = have.Lacks(&g.spec)
		n.Pending = podsOf(g.sorted(func(m *member) bool { return m.eligible() || fresh && m.state == Planned && m.free() }))
	}
	n.Ranks, n.Ranked = g.ranks()
	return n
}

// ranks numbers all members except those on their way out.
func (g *gang) ranks() (map[types.UID]int, bool) {
	return ranks(g.sorted(func(m *member) bool { return !m.leaving() }), g.numbers)
}

// asksForDomains reports whether where members may be depends on where the others are.
func (g *gang) asksForDomains() bool {
	return g.spec.RequiredTopology != "" || len(g.spec.Layout.Levels) > 0
}

// context returns what a member that goes alone has to know of its gang. Without a topology it does
// not matter where the others are, and they may be many.
func (g *gang) context() *Need {
	n := &Need{Key: g.key, Spec: g.spec}
	if g.asksForDomains() {
		n.Placed = g.places((*member).placed)
		n.Ranks, n.Ranked = g.ranks()
	}
	return n
}

// places returns where the members are that pass the test.
func (g *gang) places(test func(*member) bool) (places []Placed) {
	for _, m := range g.sorted(test) {
		places = append(places, Placed{Pod: m.pod, Node: m.node, InPlan: m.state == Planned})
	}
	return places
}

// Outcome is what an attempt led to.
type Outcome struct {
	// Nodes are the members that fit, by UID.
	Nodes map[types.UID]string
	// Fit is the number of members that fit, at best, even if Nodes are not kept.
	Fit int
	// Complete: with Nodes every gang of the group has its minimum.
	Complete bool
	// Why explains to users, for each gang, why not.
	Why map[gangspec.Key]string
	// Scattered are gangs that wait only because of their required topology, with its label key: no domain of it has
	// room for them, and several together do.
	Scattered map[gangspec.Key]string
	// Reason is the API's reason for Why; empty for Unschedulable: more nodes would help.
	Reason string
	// Cost is how long the attempt kept the scheduling thread.
	Cost time.Duration
	// Hopeless: it would not fit in an empty cluster either, as far as nodes were visited. Obstacles that may pass do not
	// count: claims without a volume, devices in use, nodes that are not ready or cordoned.
	Hopeless bool
	// FromScratch: the group gives back for it what plans gave it before.
	FromScratch bool
	// Coupled: members depend on other pods, so a pod that comes to a node may help.
	Coupled bool
	// Shape is what the attempt asked for, if that says all about why it failed.
	Shape turns.Shape
	// Holder is what room is made for, by its name, if that is not the group: its only pod, by
	// itself. Empty for the group.
	Holder string
}
