package waitingroom

import (
	"errors"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// single makes a pod in no gang that did not fit.
func (s *stage) single(name string, priority int32) *v1.Pod {
	s.t.Helper()
	pod := sample.Pod(name).Priority(priority).Obj()
	must.Succeed(s.t, s.store.Add(pod))
	if !s.SingleMayEnter(pod) {
		s.t.Errorf("%s has to wait, and did not fail", name)
	}
	s.HandleCycleStart(pod)
	s.HandleFailedCycle(s.ctx, pod, &framework.FitError{Pod: pod})
	return pod
}

// TestSinglesWaitTheirTurn: pods in no gang that did not fit enter the scheduling queue one after the other, in the
// order of their rank, once something has happened that may help them; nothing is left of them once they have nodes or
// are gone.
func TestSinglesWaitTheirTurn(t *testing.T) {
	s := newStage(t)
	low, high := s.single("low", 1), s.single("high", 9)
	if s.SingleMayEnter(low) || s.SingleMayEnter(high) {
		t.Error("one enters though nothing has happened")
	}
	s.holds.ReportFreed()
	s.let = nil
	s.Next(s.ctx)
	if !slices.Equal(s.let, []string{"high"}) || !s.SingleMayEnter(high) || s.SingleMayEnter(low) {
		t.Errorf("let in: %v; high may enter: %t, low: %t", s.let, s.SingleMayEnter(high), s.SingleMayEnter(low))
	}
	s.HandleCycleStart(high)
	bound := high.DeepCopy()
	bound.Spec.NodeName = "n"
	s.ForgetSingle(bound)
	s.Next(s.ctx)
	if !slices.Equal(s.let, []string{"high", "low"}) {
		t.Errorf("let in: %v, want the other, too", s.let)
	}
	s.HandleCycleStart(low)
	s.HandleFailedCycle(s.ctx, low, &framework.FitError{Pod: low})
	s.ForgetSingle(low)
	if !s.SingleMayEnter(high) || !s.SingleMayEnter(low) {
		t.Errorf("high may enter: %t, low: %t; want both", s.SingleMayEnter(high), s.SingleMayEnter(low))
	}
}

// TestTurnsThatAreGivenBack: a pod or a gang whose turn has come waits for another if something happens before its
// cycle begins that may help one of higher rank.
func TestTurnsThatAreGivenBack(t *testing.T) {
	s := newStage(t)
	high, low, leader := s.single("high", 9), s.single("low", -1), member("gang", 0)
	s.come("gang")
	s.tries()
	next := func(want *v1.Pod) {
		t.Helper()
		s.let = nil
		if s.Next(s.ctx); !slices.Equal(s.let, []string{want.Name}) {
			t.Fatalf("let in: %v, want %s", s.let, want.Name)
		}
	}
	misses := func(pod *v1.Pod) {
		t.Helper()
		next(pod)
		if !s.KeepsTurn(s.ctx, pod) {
			t.Errorf("%s does not keep its turn, and nothing has happened", pod.Name)
		}
		if pod == leader {
			s.fail("gang")
			return
		}
		s.HandleCycleStart(pod)
		s.HandleFailedCycle(s.ctx, pod, &framework.FitError{Pod: pod})
	}
	isLate := func(pod *v1.Pod) {
		t.Helper()
		next(pod)
		if s.holds.ReportFreed(); s.KeepsTurn(s.ctx, pod) {
			t.Errorf("%s keeps its turn, though the one before it may fit by now", pod.Name)
		}
	}
	s.holds.ReportFreed()
	misses(high)
	isLate(leader)
	misses(high)
	misses(leader)
	isLate(low)
	if s.SingleMayEnter(low) {
		t.Error("low may enter the scheduling queue without a turn")
	}
	misses(high)
	misses(leader)
	misses(low)
}

// TestSinglesThatAreGone: a pod that is gone has no turn, and keeps nobody waiting.
func TestSinglesThatAreGone(t *testing.T) {
	s := newStage(t)
	gone, nominated := s.single("gone", 9), s.single("nominated", 5)
	waits := s.single("waits", 1)
	must.Succeed(t, s.store.Delete(gone))
	s.time.Step(time.Second)
	s.holds.ReportFreed()
	s.let = nil
	s.Next(s.ctx)
	if !slices.Equal(s.let, []string{"nominated"}) || !s.SingleMayEnter(gone) || s.SingleMayEnter(waits) {
		t.Errorf("let in: %v; the one that is gone waits: %t, the other: %t", s.let, !s.SingleMayEnter(gone), !s.SingleMayEnter(waits))
	}
	nominated = nominated.DeepCopy()
	nominated.Status.NominatedNodeName = "n"
	if s.HandleCycleStart(nominated); !s.SingleMayEnter(nominated) {
		t.Error("a pod has to wait for its turn that has its place")
	}
}

// TestSinglesThatFailOtherwise: a pod that failed for another reason than that it fits nowhere enters as
// kube-scheduler's backoff says.
func TestSinglesThatFailOtherwise(t *testing.T) {
	s := newStage(t)
	pod := s.single("pod", 1)
	s.HandleFailedCycle(s.ctx, pod, errors.New("away"))
	if !s.SingleMayEnter(pod) {
		t.Error("it has to wait")
	}
}

// TestMembersPlacedAlone: a member of a gang that runs waits in the one order once it did not fit: before younger jobs
// if its gang lacks it, after them if not. When its gang no longer runs, its job is gone.
func TestMembersPlacedAlone(t *testing.T) {
	s := newStage(t)
	observe := func(pod *v1.Pod) *v1.Pod {
		must.Succeed(t, s.store.Add(pod))
		s.profile.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.ObservePod(pod, now) })
		return pod
	}
	fails := func(pod *v1.Pod) {
		s.HandleCycleStart(pod)
		s.HandleFailedCycle(s.ctx, pod, &framework.FitError{Pod: pod})
	}
	running := []*v1.Pod{observe(sample.Member("run", 0, 2).Node("n").Obj()), observe(sample.Member("run", 1, 2).Node("n").Obj())}
	surplus, other := observe(member("run", 2)), s.single("other", 0)
	fails(surplus)
	next := func(want string) {
		t.Helper()
		s.let = nil
		s.Next(s.ctx)
		if !slices.Equal(s.let, []string{want}) {
			t.Errorf("let in: %v, want %s", s.let, want)
		}
	}
	s.holds.ReportFreed()
	next(other.Name)
	fails(other)
	next(surplus.Name)
	fails(surplus)

	end := func(pod *v1.Pod) {
		s.profile.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.PodEnded(pod.UID, now) })
	}
	end(running[0])
	if s.SingleMayEnter(surplus) { // it makes up for the lost one now, and its gang brings it to the gate
		t.Error("it need not wait for its turn")
	}
	s.holds.ReportFreed()
	next(surplus.Name)
	fails(surplus)
	next(other.Name)
	fails(other)

	end(running[1])
	s.holds.ReportFreed()
	s.let = nil
	if s.Next(s.ctx); !slices.Equal(s.let, []string{surplus.Name, other.Name}) || s.IsSingle(surplus) {
		t.Errorf("activated: %v; %s is brought to wait with its gang, and then %s has its turn", s.let, surplus.Name, other.Name)
	}
	fails(other)
	s.let = nil
	if s.Next(s.ctx); len(s.let) > 0 {
		t.Errorf("let in: %v; the gang waits for its second member", s.let)
	}
}

// TestNativeGroupsAreNoSingles: what kube-scheduler schedules as a pod group waits where kube-scheduler has it.
func TestNativeGroupsAreNoSingles(t *testing.T) {
	s := newStage(t)
	pod := sample.Pod("p").Obj()
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("train")}
	must.Succeed(t, s.store.Add(pod))
	s.HandleCycleStart(pod)
	s.HandleFailedCycle(s.ctx, pod, &framework.FitError{Pod: pod})
	if !s.SingleMayEnter(pod) {
		t.Error("it has to wait for its turn")
	}
}
