package gangstate

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// Turn is a group that waits for its turn, or has it.
type Turn struct {
	// Has: it has its turn. Otherwise it waits for it.
	Has bool
	// Leader is the member that stands for it; nil if there is none yet.
	Leader *v1.Pod
	// Job is the group as it is ordered, without a name and a holder.
	Job turns.Job
}

// Turn returns a group, by its name, that waits for its turn, or has it; false if it does neither.
func (s *Gangs) Turn(group string) (t Turn, ok bool) {
	grp := s.groupOf(group)
	if grp == nil || s.closed || grp.phase != awaiting && (grp.phase != inTurn || grp.replans > 0) {
		return Turn{}, false
	}
	t = Turn{
		Has: grp.phase == inTurn,
		Job: turns.Job{
			Rank: grp.rankOf(), Strict: grp.strict(), Tried: grp.tried, Blocked: !grp.assembled(),
			NotBefore: grp.notBefore, Failures: grp.failures, Changes: grp.changes,
		},
	}
	if leader := grp.pickLeader(); leader != nil {
		t.Leader = leader.pod
	}
	return t, true
}

// Lead gives a group, by its name, its turn: its leader is let through, and returned. It is nil where the group does
// not wait.
func (s *Gangs) Lead(group string, now time.Time) (leader *v1.Pod, e Effects) {
	grp := s.groupOf(group)
	if grp == nil || s.closed || grp.phase != awaiting {
		return nil, s.takeEffects()
	}
	m := grp.pickLeader()
	if m == nil {
		return nil, s.takeEffects()
	}
	s.enterPhase(grp, inTurn, now)
	return m.pod, s.takeEffects()
}

// GiveBack takes the turn of a group from it before its attempt has begun. It waits for another.
func (s *Gangs) GiveBack(group string, now time.Time) Effects {
	if grp := s.groupOf(group); grp != nil && grp.phase == inTurn && !grp.visited && grp.replans == 0 {
		s.enterPhase(grp, awaiting, now)
	}
	return s.takeEffects()
}

// groupOf returns a group by its name; nil if there is no such group.
func (s *Gangs) groupOf(group string) *group {
	namespace, name, _ := strings.Cut(group, "/") // annotations may name a gang as no object could be named
	key := gangspec.Key{Namespace: namespace, Name: name}
	if g := s.gangs[key]; g != nil && g.group.key() == key {
		return g.group
	}
	return nil
}
