package registry

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// gangsOf returns the gangs in which the state machine has a pod.
func (s *stage) gangsOf(pod *v1.Pod) (keys []gangspec.Key) {
	if at, member := s.Progress(pod); member {
		keys = append(keys, at.Gang)
	}
	return keys
}

// TestPodThatMoves: a pod that leaves its gang is a member no longer, goes through the gates again, and nothing is kept
// for it that was meant for its gang. It may still name a native PodGroup that is no gang.
func TestPodThatMoves(t *testing.T) {
	member, other := makeMembers("train", 2)[0], makeMembers("eval", 2)[0]
	other.Name, other.UID = member.Name, member.UID
	alone := member.DeepCopy()
	alone.Annotations = nil
	grouped := groupedPod()
	labeled := grouped.DeepCopy()
	labeled.Labels = map[string]string{v1alpha1.PodGroupLabel: "eval"}
	eval := gangspec.Key{Namespace: "default", Name: "eval"}
	for name, c := range map[string]struct {
		before, now *v1.Pod
		want        []gangspec.Key
		activated   int
	}{
		"out of its gang":    {before: member, now: alone, activated: 1},
		"into another":       {before: member, now: other, want: []gangspec.Key{eval}},
		"into one from none": {before: alone, now: member, want: []gangspec.Key{train}},
		"back to a native PodGroup that is no gang":  {before: labeled, now: grouped, activated: 1},
		"from a native PodGroup that is no gang":     {before: grouped, now: labeled, want: []gangspec.Key{eval}},
		"out of its gang, and runs":                  {before: sample.Bound(member, "n"), now: sample.Bound(alone, "n")},
		"back to such a native PodGroup, and it ran": {before: sample.Bound(labeled, "n"), now: sample.Bound(grouped, "n")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, testProfile)
			s.groupSeen(s.ctx, gangspec.Native, nativeGroup(true, ""))
			s.podSeen(s.ctx, nil, c.before)
			s.holds.Nominate(hold.Hold{For: c.now.UID, Holder: s.of(testProfile).Holder("default/train"), Node: "n"})
			s.acted[testProfile] = gangstate.Effects{}
			s.podSeen(s.ctx, c.before, c.now)
			if got := s.gangsOf(c.now); !slices.Equal(got, c.want) {
				t.Errorf("it is in %v, want %v", got, c.want)
			}
			if got := s.acted[testProfile].Activate; len(got) != c.activated || len(got) > 0 && got[0] != c.now {
				t.Errorf("activated: %v", got)
			}
			if one, held := s.holds.HoldOf(c.now.UID); held {
				t.Errorf("room is still kept for it: %v", one)
			}
		})
	}
}

// TestSucceededPodThatMoves: a pod that ran to success counts for its gang for as long as it names it.
func TestSucceededPodThatMoves(t *testing.T) {
	s := newStage(t, testProfile)
	s.groupSeen(s.ctx, gangspec.Native, nativeGroup(true, ""))
	done := sample.Bound(groupedPod(), "n")
	done.Status.Phase = v1.PodSucceeded
	done.Labels = map[string]string{v1alpha1.PodGroupNameLabel: "eval", v1alpha1.PodGroupMinAvailableLabel: "1"}
	left := done.DeepCopy()
	left.Labels = nil
	handlers := s.succeeded(s.ctx)
	handlers.OnAdd(done, false)
	counts := func() (n int) {
		s.of(testProfile).WithGangs(func(g *gangstate.Gangs) { n = len(g.Keys()) })
		return n
	}
	if counts() != 1 {
		t.Fatal("it does not count for the gang that it names")
	}
	if handlers.OnUpdate(done, left); counts() != 0 {
		t.Error("it counts for a gang that it does not name any longer")
	}
}
