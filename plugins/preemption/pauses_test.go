package preemption

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// TestPauses: a decision that is not carried out is made again at once, and then after ever longer pauses, until one
// is.
func TestPauses(t *testing.T) {
	var p pauses
	now := time.Unix(1000, 0)
	remaining := func(group string) (time.Duration, cause) {
		one := p.current(group, now)
		return one.until.Sub(now), one.why
	}
	for i, want := range []time.Duration{0, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		if got := p.record("a", now, 0, aborted, msgAborted); got != want {
			t.Errorf("pause %d: %s, want %s", i, got, want)
		}
		if left, why := remaining("a"); left != want || why != aborted {
			t.Errorf("pause %d: %s is left, cause %d, want %s", i, left, why, want)
		}
	}
	if got := p.record("a", now, time.Second, aborted, msgAborted); got != 8*time.Second {
		t.Errorf("with errors: %s, want 8s", got)
	}
	for range 20 {
		p.record("a", now, time.Second, aborted, msgAborted)
	}
	if left, _ := remaining("a"); left != longestPause {
		t.Errorf("in the end: %s, want %s", left, longestPause)
	}
	p.end("a")
	if left, why := remaining("a"); left > 0 || why != foundNothing {
		t.Errorf("once room is made: %s is left", left)
	}
	for _, want := range []cause{foundNothing, waitsForEnding} {
		p.record("b", now, time.Second, want, msgProtected)
		if got := p.current("b", now).message; got != msgProtected {
			t.Errorf("while it pauses it says %q", got)
		}
		if left, why := remaining("b"); left != pauseShare*time.Second || why != want {
			t.Errorf("after a search that found nobody to evict: %s, cause %d, want %s, %d", left, why, pauseShare*time.Second, want)
		}
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if one := p.current("b", now); one.searchTime(time.Second) != want*time.Second {
			t.Errorf("it may search for %s, want %s", one.searchTime(time.Second), want*time.Second)
		}
		p.record("b", now, time.Second, foundTooLate, "")
		share := cutShortShare
		if i >= mostDoublings {
			share = pauseShare
		}
		if left, _ := remaining("b"); left != time.Duration(share)*time.Second {
			t.Errorf("after search %d that was cut short it pauses for %s, want %d s", i, left, share)
		}
	}
	p.record("b", now, time.Second, foundNothing, "")
	if one := p.current("b", now); one.searchTime(time.Second) != time.Second {
		t.Errorf("after a search that ended in time it may search for %s, want 1s", one.searchTime(time.Second))
	}
	for _, why := range []cause{foundNothing, foundTooLate} {
		share := map[cause]time.Duration{foundNothing: pauseShare, foundTooLate: cutShortShare}[why]
		if got := p.record("b", now, time.Minute, why, ""); got != share*time.Minute {
			t.Errorf("after a search of a minute it pauses for %s, want %d of them", got, share)
		}
	}
	p.end("b")
	p.record("c", now.Add(2*longestPause), time.Millisecond, foundNothing, "")
	if len(p.groups) != 1 {
		t.Errorf("%d preemptors are remembered, want the one that came", len(p.groups))
	}
}

// slow is a plugin that is asked once in each search, and takes a second.
type slow struct {
	opinion
	clock *clocktesting.FakeClock
	asked int
}

func (s *slow) GangPredicate(context.Context, extensionpoints.Gang, []fwk.NodeInfo) *fwk.Status {
	s.asked++
	s.clock.Step(time.Second)
	return nil
}

// TestWaitingForWhatEndsAnyhow: while places are held that pods leave which did not have to be evicted, there is one
// search in a while.
func TestWaitingForWhatEndsAnyhow(t *testing.T) {
	leaving := members("v", 2, 2, 10, 1, "n0")
	clock := clocktesting.NewFakeClock(time.Now())
	for _, pod := range leaving {
		pod.DeletionTimestamp = &metav1.Time{Time: clock.Now()}
	}
	plugin := &slow{clock: clock}
	s := newStageWith(t, plugin, []*v1.Node{node("n0", 2, "r0")}, leaving)
	s.clock = clock
	d := s.demand(t, gangspec.Spec{}, members("p", 2, 2, 100, 1)...)
	state := framework.NewCycleState()
	planner.WriteAttempt(state, d.attempt)
	f, err := s.search(s.ctx, d)
	if err != nil || f == nil || !f.waits() {
		t.Fatalf("found %+v, %v", f, err)
	}
	s.promise(d, f)
	searches := func(n, want int, when string) {
		t.Helper()
		before := plugin.asked
		for range n {
			if _, status := s.PostFilter(s.ctx, state, d.leader, nil); !strings.Contains(status.Message(), msgWaiting) {
				t.Fatalf("%s: %v", when, status)
			}
		}
		if got := plugin.asked - before; got != want {
			t.Errorf("%s: %d searches in %d attempts, want %d", when, got, n, want)
		}
	}
	searches(10, 1, "while they end")
	clock.Step(pauseShare * time.Second)
	searches(10, 1, "after a while")
	s.Holds.DropNominations(s.holder(d))
	if message := s.mustWait(d); message != "" {
		t.Errorf("once the places are gone it stands back: %q", message)
	}
}

// TestPreemptionDelay: a gang evicts no pod before its delay has passed since it first did not fit, and is looked at
// again then whatever happens.
func TestPreemptionDelay(t *testing.T) {
	victim := member("low", 0, 0, 0, 8, "n")
	s := newStage(t, []*v1.Node{node("n", 8, "r")}, []*v1.Pod{victim}, victim)
	now := clocktesting.NewFakeClock(time.Unix(1000, 0))
	s.clock = now
	attempt := &gangstate.Attempt{Group: "default/high", Strict: true, PreemptionDelay: time.Minute, Gangs: []gangstate.Need{{
		Key: gangspec.Key{Namespace: "default", Name: "high"}, Spec: gangspec.Spec{Min: 1}, Min: 1, Pending: []*v1.Pod{member("high", 0, 1, 10, 8, "")},
	}}}
	leader := attempt.Gangs[0].Pending[0]
	attempt.Leader = leader.UID
	try := func() *fwk.Status {
		state := framework.NewCycleState()
		planner.WriteAttempt(state, attempt)
		_, status := s.PostFilter(s.ctx, state, leader, nil)
		return status
	}
	for _, passed := range []time.Duration{0, 59 * time.Second, time.Minute} {
		want := passed >= attempt.PreemptionDelay
		attempt.Missed = now.Now().Add(-passed)
		if passed == 0 {
			attempt.Missed = time.Time{} // it is the first attempt
		}
		status := try()
		if evicts := status.IsSuccess(); evicts != want {
			t.Errorf("after %s: evicts %t (%s), want %t", passed, evicts, status.Message(), want)
		}
		if !want && !strings.Contains(status.Message(), msgDelay) {
			t.Errorf("after %s: %q does not tell of the delay", passed, status.Message())
		}
	}
}

// TestWhoMayNotEvictWaitsForEndingPods: a preemptor that may evict nobody takes the places of pods that are ending.
func TestWhoMayNotEvictWaitsForEndingPods(t *testing.T) {
	for name, forbid := range map[string]func(*demand){
		"never":   func(d *demand) { d.never = true },
		"delayed": func(d *demand) { d.delay = time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			running := members("v", 2, 2, 10, 1, "n0")
			s := newStage(t, []*v1.Node{node("n0", 2, "r0")}, running)
			d := s.demand(t, gangspec.Spec{}, members("p", 2, 2, 100, 1)...)
			forbid(d)
			if f, err := s.search(s.ctx, d); err != nil || f != nil {
				t.Errorf("while nobody ends: found %+v, %v", f, err)
			}
			for _, pod := range running {
				pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			if f, err := s.search(s.ctx, d); err != nil || f == nil || !f.waits() {
				t.Errorf("when both end: found %+v, %v", f, err)
			}
		})
	}
}

// TestPodsBeginToEndInAPause: a preemptor that pauses searches again when a pod begins to end, once for each pod, and
// takes places of ending pods without evicting any.
func TestPodsBeginToEndInAPause(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	running, other, preemptor := members("v", 2, 2, 100, 1, "n0"), member("w", 0, 0, 100, 1, "n1"), members("p", 2, 2, 100, 1)
	plugin := &slow{clock: clock}
	s := newStageWith(t, plugin, []*v1.Node{node("n0", 2, "r0"), node("n1", 1, "r0")}, append(running, other), objectsOf(preemptor)...)
	s.clock = clock
	d := s.demand(t, gangspec.Spec{}, preemptor...)
	state := framework.NewCycleState()
	planner.WriteAttempt(state, d.attempt)
	try := func(when string, searches int) *fwk.Status {
		t.Helper()
		before := plugin.asked
		_, status := s.PostFilter(s.ctx, state, d.leader, nil)
		if got := plugin.asked - before; got != searches {
			t.Errorf("%s: %d searches, want %d", when, got, searches)
		}
		return status
	}
	end := func(pod *v1.Pod) {
		pod.DeletionTimestamp = &metav1.Time{Time: clock.Now()}
		s.podChanged(nil, pod)
	}
	try("at first", 1)
	try("in the pause", 0)
	end(other)
	if status := try("one place, two needed", 1); !strings.Contains(status.Message(), msgNoVictims) {
		t.Errorf("in the pause it says %q", status.Message())
	}
	try("that place is known", 0)
	gone := member("lost", 0, 0, 100, 1, "gone")
	end(gone)
	try("its node is gone", 0)
	for _, pod := range running {
		end(pod)
	}
	if status := try("room for both", 1); !status.IsSuccess() || !s.Holds.Nominated(s.holder(d)) {
		t.Errorf("it does not take the places: %v", status)
	}
}

// TestWaitingBesideLessImportantNominations: a preemptor that has claimed the places of ending pods waits for their
// end, and does not begin again and again, though pods of lower priority are nominated elsewhere.
func TestWaitingBesideLessImportantNominations(t *testing.T) {
	ending := members("v", 2, 2, 10, 1, "n0")
	for _, pod := range ending {
		pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	}
	s := newStage(t, []*v1.Node{node("n0", 2, "r0"), node("n1", 1, "r0")}, ending)
	s.clock = clocktesting.NewFakeClock(time.Now())
	s.Holds.Nominate(hold.Hold{
		For: "low", Holder: hold.Holder{Profile: profile, Group: hold.SinglePod("low")}, Node: "n1", Priority: 10, Request: resource.Vector{gpu: 1},
	})
	d := s.demand(t, gangspec.Spec{}, members("p", 1, 1, 100, 2)...)
	f, err := s.search(s.ctx, d)
	if err != nil || f == nil || len(f.victims) > 0 {
		t.Fatalf("found %+v, %v", f, err)
	}
	s.promise(d, f)
	state := framework.NewCycleState()
	planner.WriteAttempt(state, d.attempt)
	if _, status := s.PostFilter(s.ctx, state, d.leader, nil); !strings.Contains(status.Message(), msgWaiting) {
		t.Errorf("it does not wait: %v", status)
	}
}
