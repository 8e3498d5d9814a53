package gang

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Verdict is what a scheduling cycle of a pod has to do.
type Verdict int

const (
	// Outside: the pod is in no gang.
	Outside Verdict = iota
	// Alone: the gang runs already, or the pod is all of it; schedule it as any
	// other pod, inside the gang's domain if it has one.
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
	Need    *Need    // with Alone: the gang's topology and where its members are
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

// Need is one gang of an attempt.
type Need struct {
	Key  Key
	Spec Spec
	// Min members are still to be placed, among them MinByRole of each role.
	Min       int
	MinByRole map[string]int
	// Pending are the members that may be placed, in order.
	Pending []*v1.Pod
	// Placed are the members that have a node, by its name.
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
		v.Verdict = Alone
		need := s.need(g)
		v.Need = &need
	case grp.phase == ready && grp.leader == pod.UID:
		v.Verdict = Lead
		v.Attempt = s.attempt(grp)
	default:
		v.Verdict, v.Reason = Wait, gatedReason(g.key)
	}
	return v
}

func (s *Gangs) attempt(grp *group) *Attempt {
	grp.seen = s.changes
	grp.triedReady = grp.readyMembers()
	a := &Attempt{Group: grp.key().String(), Leader: grp.leader, Strict: grp.strict()}
	for _, g := range grp.gangs {
		a.Gangs = append(a.Gangs, s.need(g))
	}
	return a
}

func (s *Gangs) need(g *gang) Need {
	n := Need{Key: g.key, Spec: g.spec, Min: g.need()}
	if n.Min > 0 {
		n.MinByRole = g.missingRoles(false)
		n.Pending = podsOf(g.sorted((*member).eligible))
	}
	for _, m := range g.members {
		if m.state.placed() {
			n.Placed = append(n.Placed, Placed{Pod: m.pod, Node: m.node, InPlan: m.state == Planned})
		}
	}
	return n
}

// Outcome is what came of an attempt.
type Outcome struct {
	// Nodes are the members that fit, by UID.
	Nodes map[types.UID]string
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
// the plan decides from now on; the caller holds their capacity.
func (s *Gangs) Planned(a *Attempt, o Outcome, now time.Time) (map[types.UID]string, Effects) {
	leader := s.members[a.Leader]
	if leader == nil || leader.gang.group.key().String() != a.Group {
		return nil, s.take() // the group changed under the plan; settle has seen to it
	}
	grp := leader.gang.group
	grp.cost = o.Cost
	for g := range s.timed {
		for _, name := range o.Evict {
			if g != grp && g.key().String() == name && g.phase == resting {
				s.giveBack(g)
			}
		}
	}
	keep := o.Complete || !grp.strict()
	accepted := map[types.UID]string{}
	if keep {
		for uid, node := range o.Nodes {
			m := s.members[uid]
			if m == nil || m.gang.group != grp || !m.eligible() {
				continue
			}
			m.gang.change(m, func() { m.state, m.node = Planned, node })
			accepted[uid] = node
		}
	}
	for _, g := range grp.gangs {
		g.failure = o.Why[g.key]
		s.effects.Changed = append(s.effects.Changed, g.key)
	}
	if _, set := grp.waitTime(); grp.held.IsZero() && len(o.Nodes) > 0 && (keep || set) {
		grp.held = now
	}
	if o.Complete {
		s.enterPhase(grp, following, now)
		s.settle(leader.gang, now)
	} else {
		s.fail(grp, now)
	}
	return accepted, s.take()
}

// Rivals lists the groups that hold capacity without being complete and that
// rank below the group of an attempt, the last in rank first (DESIGN: NonStrict
// deadlock).
func (s *Gangs) Rivals(a *Attempt) []string {
	leader := s.members[a.Leader]
	if leader == nil {
		return nil
	}
	grp := leader.gang.group
	var below []*group
	for other := range s.timed {
		if other != grp && other.phase == resting && other.countIn(Planned) > 0 && compareRank(grp, other) < 0 {
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
	if grp := m.gang.group; grp.held.IsZero() && !m.gang.satisfied() {
		grp.held = now
		s.track(grp)
	}
	return s.take()
}

// Permitted takes in that nothing but its gang stands between a member and its
// binding. It answers whether the member has to wait; if not, it and whoever
// else is released is in the effects.
func (s *Gangs) Permitted(uid types.UID, now time.Time) (wait bool, e Effects) {
	m := s.members[uid]
	if m == nil || m.state != Held {
		return false, s.take()
	}
	if m.gang.satisfied() {
		m.gang.change(m, func() { m.state = Released })
		s.effects.Release = append(s.effects.Release, uid)
	}
	s.settle(m.gang, now)
	return m.state == Held || m.state == Returning, s.take()
}

// Unfit takes in that a member that follows a plan did not fit on its node.
func (s *Gangs) Unfit(uid types.UID, now time.Time) Effects {
	m := s.members[uid]
	if m == nil || m.state != Planned {
		return s.take()
	}
	s.effects.Unhold = append(s.effects.Unhold, uid)
	s.unplan(m)
	s.settle(m.gang, now)
	s.admit(m)
	return s.take()
}

// Unreserved takes in that the scheduler took back a reservation: this package
// asked for it, another plugin refused, or the binding failed.
func (s *Gangs) Unreserved(uid types.UID, now time.Time) Effects {
	m := s.members[uid]
	if m == nil || (m.state != Held && m.state != Released && m.state != Returning) {
		return s.take()
	}
	m.gang.change(m, func() { m.state, m.node, m.admitted = Pending, "", false })
	s.settle(m.gang, now)
	s.admit(m)
	return s.take()
}

// BoundTo takes in that the binding of a member went through.
func (s *Gangs) BoundTo(uid types.UID, now time.Time) Effects {
	if m := s.members[uid]; m != nil && m.state == Released {
		m.gang.change(m, func() { m.state = Bound })
		s.settle(m.gang, now)
	}
	return s.take()
}
