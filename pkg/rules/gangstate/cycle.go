package gangstate

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
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

// Cycle is the verdict on a pod that enters its scheduling cycle, and what goes with it.
type Cycle struct {
	Verdict Verdict
	Group   string // the holder of what is held for the pod
	Node    string
	Reason  string
	Attempt *Attempt // with Lead
	// Need, with Alone, is the gang's topology and, if it has one, the places of its members.
	Need *Need
	// Extra: the gang has its minimum without this member.
	Extra bool
}

// Queue returns where a member stands in the queue, and why that may not let the pod through; empty if it may.
func (s *Gangs) Queue(pod *v1.Pod) (rank turns.Rank, refusal string) {
	key, _, ok := gangspec.KeyOf(pod)
	if !ok {
		return turns.Rank{}, ""
	}
	// A pod is no member if See has not been called for this version yet, or for a newer one already: it activates the
	// pod if need be.
	m := s.memberOf(pod)
	if m == nil || !m.admitted {
		return turns.Rank{}, gatedReason(key)
	}
	m.outdated = false // its cycle is yet to begin
	return m.rank(), ""
}

func gatedReason(key gangspec.Key) string { return "waiting for gang " + key.String() }

// rank returns what orders a member in the queue: that of its gang, so that the members are next to each other.
func (m *member) rank() turns.Rank {
	grp := m.gang.group
	rank := turns.Rank{Priority: corev1helpers.PodPriority(m.pod), Surplus: m.extra(), Created: grp.created(),
		Name: grp.key().String()}
	rank.Begun = m.state == Pending && !rank.Surplus && grp.begun()
	return rank
}

// extra reports whether a member that has no node is beyond the minimum of its gang.
func (m *member) extra() bool {
	g := m.gang
	if m.state != Pending || !g.hasStarted() || g.runningOrSucceeded().N < g.spec.Min {
		return false
	}
	reaches, _ := g.makesUp(m.pod) // the minimum of a role
	return !reaches
}

// BeginCycle returns the verdict on a pod that enters its scheduling cycle.
func (s *Gangs) BeginCycle(pod *v1.Pod) Cycle {
	m := s.memberOf(pod)
	if m == nil {
		if key, _, ok := gangspec.KeyOf(pod); ok {
			return Cycle{Verdict: Wait, Reason: gatedReason(key)}
		}
		return Cycle{Verdict: Outside}
	}
	g, grp := m.gang, m.gang.group
	v := Cycle{Group: grp.key().String(), Extra: m.extra()}
	switch {
	case m.state == Planned && grp.holdsPart():
		v.Verdict, v.Reason = Wait, gatedReason(g.key) // its round has failed
	case m.state == Planned && !s.turns.mayClaim(m):
		v.Verdict, v.Reason = Wait, textClaimTurn(m.claims())
	case m.state == Planned:
		v.Verdict, v.Node = Follow, m.node
	case !m.eligible():
		v.Verdict, v.Reason = Wait, gatedReason(g.key)
	case g.admitsSingly():
		v.Verdict, v.Need = Alone, g.context()
	case grp.phase == inTurn && grp.leader == pod.UID:
		v.Verdict = Lead
		v.Attempt = s.attempt(grp)
	default:
		v.Verdict, v.Reason = Wait, gatedReason(g.key)
	}
	return v
}

// Planned records the outcome of an attempt. It returns the members whose node the plan decides
// from now on; the caller holds their capacity, for the group that the attempt names, and then acts
// on the effects. Only a complete plan is followed, also by its leader; of an incomplete one a
// NonStrict group keeps what it holds, unless it is hopeless: then it has nothing to wait for.
func (s *Gangs) Planned(a *Attempt, o Outcome, now time.Time) (map[types.UID]string, Effects) {
	leader := s.members[a.Leader]
	if leader == nil {
		return nil, s.takeEffects() // another member leads by now
	}
	grp := leader.gang.group
	grp.visited = false
	if grp.phase != inTurn || !grp.isOf(a) {
		// The group changed under the plan, and has been settled since.
		s.readmit(leader)
		return nil, s.takeEffects()
	}
	hopeless := o.Hopeless && !o.Complete
	accepted := map[types.UID]string{}
	if o.FromScratch {
		s.releasePlans(grp)
	}
	given := slices.Clone(s.effects.Unhold)
	if grp.keeps(o) {
		accepted = s.accept(grp, o.Nodes)
		if o.Complete && leader.state == Planned && s.turns.mayClaim(leader) {
			s.turns.take(leader) // it is in its cycle
		}
	}
	if !o.Complete {
		grp.miss(now)
	}
	for _, g := range grp.gangs {
		g.failure = failure{cmp.Or(o.Reason, v1alpha1.ReasonUnschedulable), o.Why[g.key], o.Scattered[g.key], a.Leader}
		if !g.failure.none() && a.EvictsIn(now) > 0 {
			g.failure.message += textPreemptionDelay(a.PreemptionDelay)
			g.failure.leader = "" // kube-scheduler does not report that
		}
		s.markChanged(g)
	}
	if grp.strict() && !o.Complete && o.Fit > 0 {
		grp.clocks.wouldHold(grp, now)
	}
	if o.Complete {
		s.enterPhase(grp, following, now)
	} else {
		s.recordFailedAttempt(grp, a, o, len(accepted) > 0, now)
	}
	if hopeless && !grp.strict() {
		s.unreserve(grp)
		grp.clocks = clocks{}
	}
	s.updatePhase(leader.gang, now)
	s.dropLost(accepted, given)
	if _, ok := accepted[a.Leader]; !ok || !o.Complete {
		s.readmit(leader) // its cycle ends here, and its gang may run by now
	}
	return accepted, s.takeEffects()
}

// releasePlans gives back what plans gave to a group, for one that begins from scratch.
func (s *Gangs) releasePlans(grp *group) {
	for _, m := range grp.notStarted(Planned) {
		s.unplan(m)
	}
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

// dropLost removes from accepted the members that lost their node before the caller could hold it.
// Members that had another node before still give that back.
func (s *Gangs) dropLost(accepted map[types.UID]string, given []types.UID) {
	lost := map[types.UID]bool{}
	for uid := range accepted {
		if s.members[uid].state != Planned {
			lost[uid] = !slices.Contains(given, uid)
			delete(accepted, uid)
		}
	}
	s.effects.Unhold = slices.DeleteFunc(s.effects.Unhold, func(uid types.UID) bool { return lost[uid] })
}

// recordFailedAttempt records that an attempt did not place all. The group waits for its next turn.
func (s *Gangs) recordFailedAttempt(grp *group, a *Attempt, o Outcome, some bool, now time.Time) {
	grp.roomFor = o.Holder
	s.effects.Missed = append(s.effects.Missed, Missed{
		Group: grp.key().String(), RoomFor: o.Holder,
		AttemptFailure: turns.AttemptFailure{Cost: o.Cost, Some: some, Hopeless: o.Hopeless, Coupled: o.Coupled,
			Shape: o.Shape, EvictsNone: a.evictsNone(now)},
	})
	if grp.replans > 0 {
		s.failRound(grp, now)
	} else {
		s.endFailedRound(grp, now)
	}
}

// Reserved records that the scheduler reserved a member on a node.
func (s *Gangs) Reserved(uid types.UID, node string, now time.Time) Effects {
	m := s.members[uid]
	if m == nil || (m.state != Pending && m.state != Planned) {
		return s.takeEffects()
	}
	if m.state == Planned {
		s.effects.Unhold = append(s.effects.Unhold, uid)
	}
	m.gang.change(m, func() { m.state, m.node = Held, node })
	m.admitted = true
	grp := m.gang.group
	switch {
	case !m.free() || m.outdated:
		// It was taken out of the round while it was in its cycle.
		s.unreserveMember(m)
	case !m.gang.hasStarted():
		grp.clocks.start(now)
	}
	s.track(grp)
	return s.takeEffects()
}

// MaxPermitWait is how long the framework lets a member wait at Permit. A round takes much less.
const MaxPermitWait = 15 * time.Minute

// Permitted records that only its gang stands between a member and its binding. It returns whether
// the member has to wait; if not, it and all others that are released are in the effects. A member
// that was rejected before it got here waits too, and is rejected once more when time has passed.
// ahead: it goes on up to Bind, and waits there; see claimTurns.
func (s *Gangs) Permitted(uid types.UID, now time.Time) (wait, ahead bool, e Effects) {
	m := s.members[uid]
	if m == nil || (m.state != Held && m.state != Returning) {
		return false, false, s.takeEffects()
	}
	if m.state == Held && m.gang.hasStarted() {
		s.releaseMember(m)
	}
	s.updatePhase(m.gang, now)
	m.waiting = m.state == Held || m.state == Returning
	return m.waiting, m.state == Held && len(m.claims()) > 0, s.takeEffects()
}

// Unreserved records that a member does not go to its node after all: it follows a plan and did not fit, or the
// scheduler took back its reservation, since this package asked for it, another plugin refused, or the binding failed.
func (s *Gangs) Unreserved(uid types.UID, now time.Time) Effects {
	m := s.members[uid]
	lost := m != nil && m.state == Held && m.gang.group.strict() && !m.gang.hasStarted()
	switch {
	case m == nil || m.state == Pending || m.state == Bound:
		return s.takeEffects()
	case m.state == Planned:
		s.unplan(m)
	case m.state == Returning && m.keepsPlace && m.free() && !m.gang.group.strict() && !m.gang.hasStarted():
		s.mayFit(m.gang.group) // the last attempt was made without it
		m.gang.change(m, func() { m.state, m.admitted, m.waiting, m.keepsPlace = Planned, false, false, false })
		s.effects.Rehold = append(s.effects.Rehold, Hold{Pod: m.pod, Node: m.node, Holder: m.gang.group.key().String()})
	default:
		if m.state == Returning && m.free() {
			s.mayFit(m.gang.group) // the last attempt was made without it
		}
		s.effects.Freed = true
		m.gang.change(m, func() {
			m.state, m.node, m.admitted, m.waiting, m.keepsPlace = Pending, "", false, false, false
		})
	}
	s.endTurn(m)
	if lost {
		s.losePlace(m, now)
	}
	s.updatePhase(m.gang, now)
	s.admit(m)
	return s.takeEffects()
}

// losePlace ends the round of a Strict group of which a member has lost the place that was held for it, to a preemptor
// or to a plugin that refuses it: the rest of the plan is useless without that place.
func (s *Gangs) losePlace(m *member, now time.Time) {
	for _, g := range m.gang.group.gangs {
		if !g.hasStarted() {
			g.failure = failure{reason: v1alpha1.ReasonPlacementFailed, message: textPlaceLost(g.key, m.pod.Name)}
		}
	}
	s.failRound(m.gang.group, now)
}

// Failed records that the scheduling cycle of a pod failed. If the attempt of a leader
// ends so, by an error or by a plugin that refuses what was found, this does not mean that its
// group does not fit: the group is tried again after a backoff, whatever happens.
func (s *Gangs) Failed(uid types.UID, now time.Time) Effects {
	m := s.members[uid]
	if m == nil || !m.gang.group.visited || m.gang.group.leader != uid {
		return s.takeEffects()
	}
	grp := m.gang.group
	s.mayFit(grp)
	s.failRound(grp, now)
	s.updatePhase(m.gang, now)
	return s.takeEffects()
}

// EndedEarly records that the scheduling cycle of a pod ended before it was asked what it was for. A member that
// follows a plan did not fit; the attempt of a leader has the outcome.
func (s *Gangs) EndedEarly(pod *v1.Pod, outcome func(*Attempt) Outcome, now time.Time) Effects {
	switch v := s.BeginCycle(pod); v.Verdict {
	case Follow:
		return s.Unreserved(pod.UID, now)
	case Lead:
		_, e := s.Planned(v.Attempt, outcome(v.Attempt), now)
		return e
	default:
		return s.takeEffects()
	}
}

// NoNodes returns the outcome of an attempt in a cluster that has no node: its group rests until one comes.
func NoNodes(a *Attempt) Outcome {
	why := map[gangspec.Key]string{}
	for _, need := range a.Gangs {
		why[need.Key] = textNoNodes(need.Key, need.Spec.Min)
	}
	return Outcome{Why: why, Hopeless: true}
}

// BoundTo records that the binding of a member went through.
func (s *Gangs) BoundTo(uid types.UID, now time.Time) Effects {
	if m := s.members[uid]; m != nil && m.state == Released {
		m.gang.change(m, func() { m.state, m.waiting = Bound, false })
		s.endTurn(m)
		if g := m.gang; !g.completed.IsZero() && g.spec.Min > 0 && g.byState[Bound].N >= g.spec.Min {
			s.effects.Started = append(s.effects.Started, now.Sub(g.completed))
			g.completed = time.Time{}
		}
		s.updatePhase(m.gang, now)
	}
	return s.takeEffects()
}
