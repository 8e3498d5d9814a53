package gang

import (
	"maps"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
)

// Verdict is what a scheduling cycle of a pod has to do.
type Verdict int

const (
	// Outside: the pod is in no gang.
	Outside Verdict = iota
	// Alone: the gang runs already; schedule the pod as any other, inside the
	// gang's domain if it has one.
	Alone
	// Follow: the plan gives it Node.
	Follow
	// Lead: plan the whole group now.
	Lead
	// Wait: not now, for Reason.
	Wait
)

// Visit is the answer to a pod that enters its scheduling cycle.
type Visit struct {
	Verdict Verdict
	Group   string // the holder of what is held for the pod
	Node    string
	Reason  string
	Attempt *Attempt // with Lead
	// Need, with Alone, is the gang's topology and, where it has one, the places of
	// its members.
	Need *Need
}

// Attempt is what a plan has to place. It is a copy: the state may move on while
// the plan is made, and Planned copes.
type Attempt struct {
	Group  string
	Leader types.UID
	Strict bool
	Gangs  []Need
}

// Members counts what has to be placed at least.
func (a *Attempt) Members() int {
	n := 0
	for _, need := range a.Gangs {
		n += need.Min
	}
	return n
}

// Priority is the highest of the pending members: by it the attempt ranks.
func (a *Attempt) Priority() int32 {
	priority := int32(math.MinInt32)
	for _, need := range a.Gangs {
		for _, pod := range need.Pending {
			priority = max(priority, priorityOf(pod))
		}
	}
	return priority
}

// Without is what is left of an attempt of which some members were given a node: those
// stand in the plan.
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

// Need is one gang of an attempt.
type Need struct {
	Key  Key
	Spec Spec
	// Min members are still to be placed, among them MinByRole of each role.
	Min       int
	MinByRole map[string]int
	// Floor is what its PodGroup wants free for it in all, what its members have and take
	// included; nil for nothing, and where it runs already.
	Floor resource.Vector
	// Pending are the members that may be placed, in order.
	Pending []*v1.Pod
	// Placed are the members that have a node, by its name, in order. Those that
	// are on their way out do not count.
	Placed []Placed
}

// Placed is a member that has a node.
type Placed struct {
	Pod  *v1.Pod
	Node string
	// InPlan: only the plan gives it the node; the scheduler's cache does not know.
	InPlan bool
}

// Queue tells whether the queue may let a pod through, and if not, why.
func (s *Gangs) Queue(pod *v1.Pod) (bool, string) {
	key, _, ok := KeyOf(pod)
	if !ok {
		return true, ""
	}
	m := s.members[pod.UID]
	if m == nil {
		// See has not come by yet; it will activate the pod if need be.
		return false, gatedReason(key)
	}
	if m.admitted {
		return true, ""
	}
	return false, gatedReason(key)
}

func gatedReason(key Key) string { return "waiting for gang " + key.String() }

// Visit answers a pod that enters its scheduling cycle.
func (s *Gangs) Visit(pod *v1.Pod) Visit {
	m := s.members[pod.UID]
	if m == nil {
		if key, _, ok := KeyOf(pod); ok {
			return Visit{Verdict: Wait, Reason: gatedReason(key)}
		}
		return Visit{Verdict: Outside}
	}
	g, grp := m.gang, m.gang.group
	v := Visit{Group: grp.key().String()}
	switch {
	case m.state == Planned:
		v.Verdict, v.Node = Follow, m.node
	case !m.eligible():
		v.Verdict, v.Reason = Wait, gatedReason(g.key)
	case g.satisfied():
		v.Verdict, v.Need = Alone, g.context()
	case grp.phase == ready && grp.leader == pod.UID:
		v.Verdict = Lead
		v.Attempt = s.attempt(grp)
	default:
		v.Verdict, v.Reason = Wait, gatedReason(g.key)
	}
	return v
}

func (s *Gangs) attempt(grp *group) *Attempt {
	grp.seen, grp.stale, grp.tried = s.changes, false, grp.pool()
	a := &Attempt{Group: grp.key().String(), Leader: grp.leader, Strict: grp.strict()}
	for _, g := range grp.gangs {
		a.Gangs = append(a.Gangs, g.wants())
	}
	return a
}

// isOf tells whether an attempt was made for the group as it is now.
func (g *group) isOf(a *Attempt) bool {
	return slices.EqualFunc(g.gangs, a.Gangs, func(gang *gang, need Need) bool { return gang.key == need.Key })
}

// wants is what an attempt has to know of a gang.
func (g *gang) wants() Need {
	n := Need{Key: g.key, Spec: g.spec, Min: g.need(), Placed: g.places()}
	if !g.satisfied() {
		n.Floor = g.spec.MinResources
	}
	if n.Min > 0 {
		n.MinByRole = g.missingRoles()
		n.Pending = podsOf(g.sorted((*member).eligible))
	}
	return n
}

// context is what a member that goes alone has to know of its gang. Without a
// topology it does not matter where the others are, and they may be many.
func (g *gang) context() *Need {
	n := &Need{Key: g.key, Spec: g.spec}
	if g.spec.RequiredTopology != "" || g.spec.PreferredTopology != "" {
		n.Placed = g.places()
	}
	return n
}

func (g *gang) places() []Placed {
	var places []Placed
	for _, m := range g.sorted((*member).placed) {
		places = append(places, Placed{Pod: m.pod, Node: m.node, InPlan: m.state == Planned})
	}
	return places
}

// Outcome is what came of an attempt.
type Outcome struct {
	// Nodes are the members that fit, by UID.
	Nodes map[types.UID]string
	// Fit is the number of members that fit, at best, also where Nodes are not kept.
	Fit int
	// Complete: with Nodes every gang of the group has its minimum.
	Complete bool
	// Why explains to users, gang by gang, why not.
	Why map[Key]string
	// Cost is how long the attempt kept the scheduling thread.
	Cost time.Duration
	// Evict: groups whose held, incomplete plans make way for this one.
	Evict []string
}

// Planned takes in the outcome of an attempt. It answers the members whose node
// the plan decides from now on; the caller holds their capacity, for the group
// that the attempt names, and then acts on the effects. Only a complete plan is
// followed, by its leader too; of an incomplete one a NonStrict group keeps what
// it holds.
func (s *Gangs) Planned(a *Attempt, o Outcome, now time.Time) (map[types.UID]string, Effects) {
	leader := s.members[a.Leader]
	if leader == nil {
		return nil, s.take() // another one leads by now
	}
	grp := leader.gang.group
	if grp.phase != ready || !grp.isOf(a) {
		// The group changed under the plan, and has been settled since.
		s.readmit(leader)
		return nil, s.take()
	}
	grp.cost = o.Cost
	s.evict(o.Evict, grp)
	keep := o.Complete || !grp.strict()
	accepted := map[types.UID]string{}
	if keep {
		accepted = s.accept(grp, o.Nodes)
	}
	for _, g := range grp.gangs {
		g.failure = o.Why[g.key]
		s.tell(g)
	}
	if _, set := grp.waitTime(); set && !keep && o.Fit > 0 && grp.held.IsZero() {
		grp.held = now // they would have been held
	}
	if o.Complete {
		s.enterPhase(grp, following, now)
	} else {
		s.fail(grp, now)
	}
	s.settle(leader.gang, now)
	s.dropLost(accepted)
	if _, ok := accepted[a.Leader]; !ok || !o.Complete {
		s.readmit(leader) // its cycle ends here, and its gang may run by now
	}
	return accepted, s.take()
}

// accept gives the members of a plan their nodes. Some may have gone, or have
// been taken out of the round, since the attempt began.
func (s *Gangs) accept(grp *group, nodes map[types.UID]string) map[types.UID]string {
	accepted := map[types.UID]string{}
	for uid, node := range nodes {
		m := s.members[uid]
		if m == nil || m.gang.group != grp || !m.eligible() {
			continue
		}
		m.gang.change(m, func() { m.state, m.node = Planned, node })
		accepted[uid] = node
	}
	return accepted
}

// dropLost takes back members that lost their node before the caller could hold
// it.
func (s *Gangs) dropLost(accepted map[types.UID]string) {
	lost := map[types.UID]bool{}
	for uid := range accepted {
		if s.members[uid].state != Planned {
			lost[uid] = true
			delete(accepted, uid)
		}
	}
	s.effects.Unhold = slices.DeleteFunc(s.effects.Unhold, func(uid types.UID) bool { return lost[uid] })
}

// evict gives back the plans of groups that make way for another one.
func (s *Gangs) evict(names []string, winner *group) {
	if len(names) == 0 {
		return
	}
	for grp := range s.timed {
		if grp != winner && grp.hoards() && slices.Contains(names, grp.key().String()) {
			s.giveBack(grp)
			grp.held = time.Time{}
		}
	}
}

// Hoards lists the groups of less than a priority that hold capacity without being
// complete.
func (s *Gangs) Hoards(below int32) []string {
	var names []string
	for grp := range s.timed {
		if grp.hoards() && grp.priority() < below {
			names = append(names, grp.key().String())
		}
	}
	slices.Sort(names)
	return names
}

// Yield has groups that hold capacity without being complete give it back, for somebody
// whom this state does not know.
func (s *Gangs) Yield(names []string) Effects {
	s.evict(names, nil)
	return s.take()
}

// Rivals lists the groups that hold capacity without being complete and that
// rank below the group of an attempt, the last in rank first: NonStrict groups
// may starve each other (seed 002, NonStrict).
func (s *Gangs) Rivals(a *Attempt) []string {
	leader := s.members[a.Leader]
	if leader == nil {
		return nil
	}
	grp := leader.gang.group
	var below []*group
	for other := range s.timed {
		if other != grp && other.hoards() && compareRank(grp, other) < 0 {
			below = append(below, other)
		}
	}
	slices.SortFunc(below, func(a, b *group) int { return compareRank(b, a) })
	names := make([]string, len(below))
	for i, other := range below {
		names[i] = other.key().String()
	}
	return names
}

// Reserved takes in that the scheduler reserved a member on a node.
func (s *Gangs) Reserved(uid types.UID, node string, now time.Time) Effects {
	m := s.members[uid]
	if m == nil || (m.state != Pending && m.state != Planned) {
		return s.take()
	}
	if m.state == Planned {
		s.effects.Unhold = append(s.effects.Unhold, uid)
	}
	m.gang.change(m, func() { m.state, m.node = Held, node })
	m.admitted = true
	grp := m.gang.group
	switch {
	case !m.free():
		// It was taken out of the round while it was in its cycle.
		s.takeBack(m)
	case grp.held.IsZero() && !m.gang.satisfied():
		grp.held = now
	}
	s.track(grp)
	return s.take()
}

// Permitted takes in that nothing but its gang stands between a member and its
// binding. It answers whether the member has to wait; if not, it and whoever
// else is released is in the effects. A member that was rejected before it came
// here waits too, and is rejected once more when time has passed.
func (s *Gangs) Permitted(uid types.UID, now time.Time) (wait bool, e Effects) {
	m := s.members[uid]
	if m == nil || (m.state != Held && m.state != Returning) {
		return false, s.take()
	}
	if m.state == Held && m.gang.satisfied() {
		s.letGoOf(m)
	}
	s.settle(m.gang, now)
	m.waiting = m.state == Held || m.state == Returning
	return m.waiting, s.take()
}

// Unfit takes in that a member that follows a plan did not fit on its node.
func (s *Gangs) Unfit(uid types.UID, now time.Time) Effects {
	m := s.members[uid]
	if m == nil || m.state != Planned {
		return s.take()
	}
	s.unplan(m)
	s.settle(m.gang, now)
	s.admit(m)
	return s.take()
}

// Unreserved takes in that the scheduler took back a reservation: this package
// asked for it, another plugin refused, or the binding failed. A member that
// was not reserved yet, but planned, did not fit.
func (s *Gangs) Unreserved(uid types.UID, now time.Time) Effects {
	m := s.members[uid]
	switch {
	case m == nil:
		return s.take()
	case m.state == Planned:
		return s.Unfit(uid, now)
	case m.state == Pending || m.state == Bound:
		return s.take()
	}
	if m.state == Held && m.waiting && !m.gang.group.strict() {
		// Nobody rejected it: its wait ran into the framework's limit. The hold goes
		// on in the ledger.
		m.gang.change(m, func() { m.state, m.admitted, m.waiting = Planned, false, false })
		s.effects.Rehold = append(s.effects.Rehold, Hold{Pod: m.pod, Node: m.node, Holder: m.gang.group.key().String()})
	} else {
		s.effects.Freed = true
		m.gang.change(m, func() { m.state, m.node, m.admitted, m.waiting = Pending, "", false, false })
	}
	s.settle(m.gang, now)
	s.admit(m)
	return s.take()
}

// BoundTo takes in that the binding of a member went through.
func (s *Gangs) BoundTo(uid types.UID, now time.Time) Effects {
	if m := s.members[uid]; m != nil && m.state == Released {
		m.gang.change(m, func() { m.state, m.waiting = Bound, false })
		m.gang.noteStart(&s.effects, now)
		s.settle(m.gang, now)
	}
	return s.take()
}

// noteStart tells once per round how long a gang that was complete took to have
// its minimum bound.
func (g *gang) noteStart(e *Effects, now time.Time) {
	if !g.completed.IsZero() && g.spec.Min > 0 && g.count[Bound] >= g.spec.Min {
		e.Started = append(e.Started, now.Sub(g.completed))
		g.completed = time.Time{}
	}
}
