package gangstate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// PodEnded records that a pod was deleted, or has ended.
func (s *Gangs) PodEnded(uid types.UID, now time.Time) Effects {
	if m := s.members[uid]; m != nil {
		s.dismiss(m, now)
	}
	return s.takeEffects()
}

// dismiss removes a member that leaves for good. If it still waits it is rejected: its release may not have reached
// it.
func (s *Gangs) dismiss(m *member, now time.Time) {
	if m.state == Released && m.waiting {
		s.effects.Reject = append(s.effects.Reject, m.uid())
	}
	s.remove(m, now)
}

func (s *Gangs) remove(m *member, now time.Time) {
	g := m.gang
	s.releaseMemberHold(m, m.state)
	g.leave(m)
	g.incarnation.end(m.uid())
	g.numbers.remove(m.index)
	delete(g.members, m.uid())
	delete(s.members, m.uid())
	s.endTurn(m)
	s.turns.forget(m)
	if len(g.members) == 0 {
		g.toldOf = nil
		clear(g.numbers)
		g.incarnation.seeAgain(nil)
	}
	g.ignore(m)
	if g.defining() != g.definer {
		s.redefine(g, now)
	}
	s.updatePhase(g, now)
	if m.state == Bound && g.asksForDomains() && g.admitsSingly() && !g.isOn(m.node) {
		s.readmitExtras(g) // it may have been the last member in the domain that they had to join
	}
	if len(g.members) == 0 {
		s.updateAwaiting(g, now)
	}
	s.forget(g)
}

// isOn reports whether the gang has a placed member on a node.
func (g *gang) isOn(node string) bool {
	for _, m := range g.members {
		if m.node == node && m.placed() {
			return true
		}
	}
	return false
}

// releaseMemberHold ends what is held for a member that left the given state for good.
func (s *Gangs) releaseMemberHold(m *member, was State) {
	switch was {
	case Planned:
		s.effects.Unhold = append(s.effects.Unhold, m.uid())
	case Held, Returning:
		s.effects.Reject = append(s.effects.Reject, m.uid())
	case Pending, Released, Bound:
		return
	}
	s.effects.Freed = true
}

// forget drops a gang of which nothing is left. It is in no group with others by then.
func (s *Gangs) forget(g *gang) {
	if g.empty() {
		delete(s.gangs, g.key)
	}
}

func (s *Gangs) seeSucceeded(pod *v1.Pod, key gangspec.Key, now time.Time) {
	if former := s.succeeded[pod.UID]; former != nil && former.key != key {
		s.leaveSucceeded(pod.UID, now)
	}
	if pod.Spec.NodeName == "" {
		return
	}
	g := s.succeeded[pod.UID]
	if g == nil && gangspec.RanToSuccess(pod) && !s.gang(key).incarnation.replaces(gangspec.OriginOf(pod)) {
		g = s.gang(key)
		s.succeeded[pod.UID] = g
		g.incarnation.succeed(pod)
	}
	if m := s.members[pod.UID]; m != nil {
		s.dismiss(m, now)
	}
	if g != nil {
		s.updatePhase(g, now)
	}
}

// ForgetSucceeded records that the object of a member that ran to success was deleted.
func (s *Gangs) ForgetSucceeded(pod *v1.Pod, now time.Time) Effects {
	if g := s.succeeded[pod.UID]; g != nil {
		had := g.succeeded().N
		if g.incarnation.deleted(pod.UID) {
			g.writeOff(had - g.succeeded().N)
		}
		s.dropSucceeded(g, pod.UID, now)
	}
	return s.takeEffects()
}

// leaveSucceeded takes a member that ran to success out of its gang, which it does not name any longer.
func (s *Gangs) leaveSucceeded(uid types.UID, now time.Time) {
	if g := s.succeeded[uid]; g != nil {
		g.incarnation.drop(uid)
		s.dropSucceeded(g, uid, now)
	}
}

func (s *Gangs) dropSucceeded(g *gang, uid types.UID, now time.Time) {
	delete(s.succeeded, uid)
	g.group.ranked = false
	s.updatePhase(g, now)
	s.forget(g)
}
