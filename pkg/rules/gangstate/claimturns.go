package gangstate

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// A ResourceClaim that several pods name is allocated with the first of them, and then reserved for
// each: calls to the API server of which one at a time succeeds, and while the first is under way
// the scheduler refuses all other pods. So the members that have a claim in common go one after the
// other, and each goes ahead up to the very end: its calls are made when it waits to be bound, and
// then it is the next one's turn. None is bound before all are there.

// claimTurns is which members name which claim, and whose turn it is.
type claimTurns struct {
	users map[types.NamespacedName]map[*member]bool
	turn  map[types.NamespacedName]*member
}

func newClaimTurns() claimTurns {
	return claimTurns{users: map[types.NamespacedName]map[*member]bool{}, turn: map[types.NamespacedName]*member{}}
}

// NamedClaims returns the claims that a pod names, and other pods may name, too.
func NamedClaims(pod *v1.Pod) []types.NamespacedName {
	var claims []types.NamespacedName
	for i := range pod.Spec.ResourceClaims {
		if name := pod.Spec.ResourceClaims[i].ResourceClaimName; name != nil {
			claims = append(claims, types.NamespacedName{Namespace: pod.Namespace, Name: *name})
		}
	}
	return claims
}

func (m *member) claims() []types.NamespacedName { return NamedClaims(m.pod) }

// add records the claims of a new member.
func (t *claimTurns) add(m *member) {
	for _, claim := range m.claims() {
		nested.Set(t.users, claim, m, true)
	}
}

// forget records that a member is gone. The caller has ended its turn.
func (t *claimTurns) forget(m *member) {
	for _, claim := range m.claims() {
		nested.Delete(t.users, claim, m)
	}
}

// mayClaim reports whether it is a member's turn with all claims that it names, or no member's.
func (t *claimTurns) mayClaim(m *member) bool {
	for _, claim := range m.claims() {
		if other := t.turn[claim]; other != nil && other != m {
			return false
		}
	}
	return true
}

// take makes it a member's turn.
func (t *claimTurns) take(m *member) {
	for _, claim := range m.claims() {
		t.turn[claim] = m
	}
}

// endTurn ends a member's turn, if it has it, and lets through the members that wait for that.
func (s *Gangs) endTurn(m *member) {
	for _, claim := range m.claims() {
		if s.turns.turn[claim] != m {
			continue
		}
		delete(s.turns.turn, claim)
		var waiting []*member
		for other := range s.turns.users[claim] {
			if other != m && other.state == Planned {
				waiting = append(waiting, other)
			}
		}
		slices.SortFunc(waiting, compareMembers)
		for _, other := range waiting {
			s.admit(other)
		}
	}
}

// Through records that a member is about to be bound: all other calls for it have been made.
func (s *Gangs) Through(uid types.UID) Effects {
	if m := s.members[uid]; m != nil {
		s.endTurn(m)
	}
	return s.takeEffects()
}

// Withdraw reports whether the allocation of a claim may be taken back now: no pod has the claim, nor is on its way to
// it. The members that name it, and the pods that it is reserved for, are members without a node. Those that it is
// reserved for count as if they had scheduling gates until the caller reports it as Withdrawn: nothing would stop their
// binding, because kube-scheduler makes no call for a claim that is reserved already. One of them may be in its cycle
// at this moment, based on the present allocation: if it is reserved in that cycle, it gives its node back.
func (s *Gangs) Withdraw(claim types.NamespacedName, reservedFor []types.UID, now time.Time) (bool, Effects) {
	for m := range s.turns.users[claim] {
		if m.state != Pending {
			return false, s.takeEffects()
		}
	}
	members := make([]*member, len(reservedFor))
	for i, uid := range reservedFor {
		if members[i] = s.members[uid]; members[i] == nil || members[i].state != Pending {
			return false, s.takeEffects()
		}
	}
	for _, m := range members {
		m.gang.change(m, func() { m.losing, m.outdated = m.losing.Union(sets.New(claim)), true })
	}
	s.withdrawals[claim] = s.withdrawals[claim].Union(sets.New(reservedFor...))
	s.reviewAll(members, now)
	return true, s.takeEffects()
}

// Withdrawn records that a look at the claim from now on shows that it was taken back, or that it was not and will not
// be. It does nothing for a claim that is not being taken back.
func (s *Gangs) Withdrawn(claim types.NamespacedName, now time.Time) Effects {
	var members []*member
	for uid := range s.withdrawals[claim] {
		if m := s.members[uid]; m != nil {
			m.gang.change(m, func() { m.losing.Delete(claim) })
			members = append(members, m)
		}
	}
	delete(s.withdrawals, claim)
	slices.SortFunc(members, compareMembers)
	s.reviewAll(members, now)
	return s.takeEffects()
}

// reviewAll settles members that became eligible, or no longer are.
func (s *Gangs) reviewAll(members []*member, now time.Time) {
	for _, m := range members {
		if m.coming() {
			s.mayFit(m.gang.group)
		}
		s.updatePhase(m.gang, now)
		s.admit(m)
	}
}
