package preemption

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// takeOver lets the gang high take the places on n0 that were found for the gang low, whose victims are not gone yet.
func (s *stage) takeOver(t *testing.T, first, second *demand) (chosen, taken *found) {
	t.Helper()
	chosen = s.decide(t, first)
	taken, err := s.search(s.ctx, second)
	if err != nil || taken == nil || len(chosen.victims) != 2 || len(taken.victims) != 0 || len(taken.leaving) != 2 {
		t.Fatalf("chosen %v, taken %v, %v; want the places of the other, without victims", chosen, taken, err)
	}
	return chosen, taken
}

// adopt makes a decision one for which the victims are evicted whose places it takes.
func (s *stage) adopt(t *testing.T, d *demand, f *found) {
	t.Helper()
	for _, holder := range f.outrank {
		s.Holds.DropNominations(holder)
	}
	s.promise(d, f)
	if !s.Underway.AdoptVictims(f.preemption, f.leaving, f.outrank) {
		t.Fatal("those who were chosen do not count as such")
	}
}

// TestTakenOver: a preemptor of higher priority takes the room that is being made for another. The victims that were
// chosen for the other are evicted all the same, for the one that counts on it; or where they were spared before, it
// does not count on it.
func TestTakenOver(t *testing.T) {
	for sentence, spared := range map[string]bool{"they go": false, "they were spared before": true} {
		t.Run(sentence, func(t *testing.T) {
			low, high, victims := members("low", 2, 2, 50, 2), members("high", 2, 2, 100, 2), members("v", 2, 2, 10, 2, "n0")
			s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, victims, objectsOf(low, high, victims)...)
			server{}.stand(s.fw.ClientSet().(*fake.Clientset))
			first, second := s.demand(t, gangspec.Spec{}, low...), s.demand(t, gangspec.Spec{}, high...)
			chosen, taken := s.takeOver(t, first, second)
			if spared {
				s.execution(first, chosen).withdraw()
				before := hold.Hold{For: high[0].UID, Holder: s.holder(second), Node: "n1", Claim: 7}
				s.Holds.Nominate(before) // of a decision before
				if s.beginPreemption(s.ctx, second, taken) {
					t.Error("it counts on pods that go on")
				}
				one, _ := s.Holds.Nomination(high[0].UID)
				if _, more := s.Holds.Nomination(high[1].UID); one.Node != before.Node || one.Claim != before.Claim || more {
					t.Errorf("held: %+v, and for the other %t; want what was before", one, more)
				}
				return
			}
			s.adopt(t, second, taken)
			if a, b := s.Underway.Victims(s.holder(first)), s.Underway.Victims(s.holder(second)); a != 0 || b != 2 {
				t.Errorf("the first awaits %d victims, the other %d; want none and all", a, b)
			}
			if s.execution(first, chosen).preemptorNeeds() {
				t.Fatal("the first still needs the room")
			}
			s.execution(first, chosen).carryOut(s.ctx)
			if got := s.left(t); got != "high-0 high-1 low-0 low-1" {
				t.Errorf("left: %s; want the victims gone", got)
			}
		})
	}
}

// TestVictimsNobodyNeedsStay: victims run on when their preemptor no longer needs the room, even if a preemptor that
// does not outrank it has relied on their end. That one decides anew.
func TestVictimsNobodyNeedsStay(t *testing.T) {
	low, alike, victims := members("low", 2, 2, 50, 2), members("alike", 2, 2, 10, 2), members("v", 2, 2, 10, 2, "n0")
	s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, victims, objectsOf(low, alike, victims)...)
	server{}.stand(s.fw.ClientSet().(*fake.Clientset))
	first, second := s.demand(t, gangspec.Spec{}, low...), s.demand(t, gangspec.Spec{}, alike...)
	var count atomic.Int32
	s.know(recalls{known{}, &count, "alike"})
	chosen := s.decide(t, first)
	s.Holds.DropNominations(s.holder(first))
	taken, err := s.search(s.ctx, second)
	if err != nil || taken == nil || len(taken.victims) != 0 || len(taken.leaving) != 2 {
		t.Fatalf("%v, %v; want the places of the victims", taken, err)
	}
	s.adopt(t, second, taken)
	if n := s.Underway.Victims(s.holder(second)); n != 0 {
		t.Fatalf("it has adopted %d victims", n)
	}
	s.execution(first, chosen).carryOut(s.ctx)
	if got := s.left(t); got != "alike-0 alike-1 low-0 low-1 v-0 v-1" {
		t.Errorf("left: %s; want all", got)
	}
	await.Until(t, "it looks again", func() bool { return count.Load() > 0 })
}

// TestNotTakenOver: room that is being made for another queue stays that queue's, whatever the priorities.
func TestNotTakenOver(t *testing.T) {
	for sentence, c := range map[string]struct {
		queue string
		want  bool
	}{"of the same queue": {"a", true}, "of another": {"b", false}} {
		t.Run(sentence, func(t *testing.T) {
			low, high, victims := members("low", 2, 2, 50, 2), members("high", 2, 2, 100, 2), members("v", 2, 2, 10, 2, "n0")
			queues := map[types.UID]string{low[0].UID: "a", low[1].UID: "a", high[0].UID: c.queue, high[1].UID: c.queue}
			plugin := &tiered{
				tiers: []extensionpoints.Tier{{Gangs: true, Permits: func(pod *v1.Pod) bool { return pod.UID == victims[0].UID || pod.UID == victims[1].UID }}},
				queue: func(pod *v1.Pod) string { return queues[pod.UID] },
			}
			s := newStageWith(t, plugin, []*v1.Node{node("n0", 4, "r0")}, victims, objectsOf(low, high, victims)...)
			first, second := s.demand(t, gangspec.Spec{}, low...), s.demand(t, gangspec.Spec{}, high...)
			s.decide(t, first)
			taken, err := s.search(s.ctx, second)
			if err != nil || (taken != nil && len(taken.outrank) > 0) != c.want {
				t.Errorf("taken %+v, %v; want it taken: %t", taken, err, c.want)
			}
		})
	}
}

// TestTakenVictims: a decision that is taken back spares no pod that became the victim of another preemptor, with its
// gang.
func TestTakenVictims(t *testing.T) {
	low, high, victims := members("low", 2, 2, 50, 1), members("high", 2, 2, 100, 1), members("v", 2, 2, 10, 2, "n0")
	s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, victims, low[0], low[1], high[0], high[1])
	first, second := s.demand(t, gangspec.Spec{}, low...), s.demand(t, gangspec.Spec{}, high...)
	e := s.execution(first, &found{plan: &planner.Plan{}, victims: victims})
	s.Underway.AddVictims(s.Gangs, e.f.preemption, victims)
	s.Underway.AddVictims(s.Gangs, s.decision(second), victims[1:])
	e.withdraw()
	if a, b := s.Underway.Victims(s.holder(first)), s.Underway.Victims(s.holder(second)); a != 0 || b != 1 {
		t.Errorf("%d and %d victims, want none, and that of the other", a, b)
	}
}

// recalls counts the calls of Recall for members of a gang.
type recalls struct {
	known
	count *atomic.Int32
	gang  string
}

func (c recalls) Recall(pod *v1.Pod) {
	if strings.HasPrefix(pod.Name, c.gang) {
		c.count.Add(1)
	}
}

// TestLetDown: a preemptor that counts on the victims of another one looks again when these go on after all.
func TestLetDown(t *testing.T) {
	low, high, victims := members("low", 2, 2, 50, 2), members("high", 2, 2, 100, 2), members("v", 2, 2, 10, 2, "n0")
	s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, victims, objectsOf(low, high, victims)...)
	first, second := s.demand(t, gangspec.Spec{}, low...), s.demand(t, gangspec.Spec{}, high...)
	var count atomic.Int32
	s.know(recalls{known{}, &count, "high"})
	chosen, taken := s.takeOver(t, first, second)
	s.adopt(t, second, taken)
	s.tidy(s.ctx)
	if n := count.Load(); n != 0 {
		t.Fatalf("%d changes while the victims are to go", n)
	}
	s.execution(first, chosen).withdraw()
	await.Until(t, "one change", func() bool { return count.Load() == 1 })
}

// TestRecalledAfterAPause: a gang that was refused since it pauses is tried again when its pause is over: what has
// happened since its search may have helped.
func TestRecalledAfterAPause(t *testing.T) {
	high := members("high", 2, 2, 100, 2)
	s := newStage(t, []*v1.Node{node("n0", 4, "r0")}, nil, objectsOf(high)...)
	d := s.demand(t, gangspec.Spec{}, high...)
	var count atomic.Int32
	s.know(recalls{known{}, &count, "high"})
	s.pauses.record(d.attempt.Group, s.clock.Now(), 20*time.Millisecond, foundNothing, msgNoVictims)
	if message := s.mustWait(d); message != msgNoVictims {
		t.Fatalf("it need not wait: %q", message)
	}
	await.Until(t, "it is recalled", func() bool { return count.Load() == 1 })
	if message := s.mustWait(d); message != "" {
		t.Errorf("it pauses still: %q", message)
	}
}

// TestPlacesElsewhere: a nominated preemptor that looks again and finds other places is nominated to these: it is told
// if what it awaits there does not end.
func TestPlacesElsewhere(t *testing.T) {
	stays, leaves := member("a", 0, 0, 200, 1, "n0"), member("b", 0, 0, 10, 1, "n1")
	leaves.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	leaves.Finalizers = []string{"example.com/still"}
	preemptor := member("p", 0, 0, 100, 1, "")
	s := newStage(t, []*v1.Node{node("n0", 1, "r0"), node("n1", 1, "r0")}, []*v1.Pod{stays, leaves}, stays, leaves, preemptor)
	holder := hold.Holder{Profile: profile, Group: hold.SinglePod(preemptor.UID)}
	s.Holds.Nominate(hold.Hold{For: preemptor.UID, Holder: holder, Node: "n0", Priority: 100, Claim: s.Holds.NewClaim()})
	for _, want := range []string{"", "preemption: " + msgWaiting} {
		_, status := s.PostFilter(s.ctx, framework.NewCycleState(), preemptor, nil)
		if status.Message() != want {
			t.Errorf("it is told %q, want %q", status.Message(), want)
		}
		if one, _ := s.Holds.Nomination(preemptor.UID); one.Node != "n1" {
			t.Errorf("it is nominated to %q", one.Node)
		}
	}
}
