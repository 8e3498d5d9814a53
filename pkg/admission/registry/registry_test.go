package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// TestAskedWhileRegistering: watches read the registry while profiles are still being registered.
func TestAskedWhileRegistering(t *testing.T) {
	s := newStage(t, "one")
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for range 1000 {
			s.QueueOf("one", gangstate.Key{})
		}
	}()
	for i := range 100 {
		s.Register(named{name: fmt.Sprint("profile-", i)}, Settings{}, nil)
	}
	<-asked
	if got := len(s.all()); got != 101 {
		t.Errorf("%d profiles are registered, want 101", got)
	}
}

// TestAwaitsItsOwnVictims: the explanation of a pod in no gang is not the last as long as victims make room for the
// pod.
func TestAwaitsItsOwnVictims(t *testing.T) {
	s := newStage(t, testProfile)
	pod := st.MakePod().Name("p").UID("p").SchedulerName(testProfile).Obj()
	mine, left := hold.Holder{Profile: testProfile, Group: hold.SinglePod(pod.UID)}, 1
	s.all()[testProfile].victims = func(holder hold.Holder) int {
		if holder == mine {
			return left
		}
		return 0
	}
	if !s.mayChange(pod) {
		t.Error("it awaits nothing while its victim ends")
	}
	if left = 0; s.mayChange(pod) {
		t.Error("it still awaits something")
	}
}

// TestVictimsEnd: a gang for which victims make room is tried again when the last of them is gone, or when something
// else has changed that may help it. Another gang, which waits without victims, may use what any of them leaves.
func TestVictimsEnd(t *testing.T) {
	s := newStage(t, testProfile)
	awaited := map[types.UID]bool{"v0": true, "v1": true, "v2": true}
	s.Registry.victims = func(holder hold.Holder) int {
		if holder.Group != train.String() {
			return 0
		}
		return len(awaited)
	}
	s.OnLeft(func(pod types.UID, _ time.Time) bool {
		was := awaited[pod]
		delete(awaited, pod)
		return was
	})
	p := s.of(testProfile)
	names := []string{"train", "other"}
	tries := func() map[string]int {
		tried := map[string]int{}
		visit := func(pod *v1.Pod, name string) {
			p.Input(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects {
				v := g.Visit(pod)
				if v.Verdict != gangstate.Lead {
					return gangstate.Effects{}
				}
				tried[name]++
				_, e := g.Planned(v.Attempt, gangstate.Outcome{}, now)
				return e
			})
		}
		for range 10 {
			p.Input(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.Retry(now, elsewhere{p}) })
			for _, name := range names {
				for _, pod := range makeMembers(name, 2) {
					visit(pod, name)
				}
			}
		}
		return tried
	}
	ends := func(uid string) func() {
		return func() {
			s.Heard(framework.EventAssignedPodDelete, st.MakePod().Name(uid).UID(uid).Node("n").Obj(), nil)
		}
	}
	nodeComes := func() {
		s.Heard(fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, st.MakeNode().Name("n").Obj())
	}
	for _, name := range names {
		for _, pod := range makeMembers(name, 2) {
			s.podSeen(s.ctx, nil, pod)
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		want map[string]int
	}{
		{"they came", func() {}, map[string]int{"train": 1, "other": 1}},
		{"a victim ends", ends("v0"), map[string]int{"other": 1}},
		{"another pod ends", ends("x"), map[string]int{"train": 1, "other": 1}},
		{"a node comes", nodeComes, map[string]int{"train": 1, "other": 1}},
		{"a second victim ends", ends("v1"), map[string]int{"other": 1}},
		{"the last one ends", ends("v2"), map[string]int{"train": 1, "other": 1}},
		{"nothing happens", func() {}, map[string]int{}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, tries()); diff != "" {
			t.Errorf("%s: attempts (-want +got):\n%s", step.what, diff)
		}
	}
}

// TestNext: once capacity was given back, Next activates the leader of a gang that it may help.
func TestNext(t *testing.T) {
	s := newStage(t, testProfile)
	p := s.of(testProfile)
	for _, pod := range makeMembers("train", 2) {
		s.podSeen(s.ctx, nil, pod)
	}
	fail := func() {
		t.Helper()
		var v gangstate.Visit
		p.Look(func(g *gangstate.Gangs) {
			if v = g.Visit(makeMembers("train", 2)[0]); v.Verdict != gangstate.Lead {
				t.Fatalf("verdict %v of the leader", v.Verdict)
			}
		})
		p.Planned(v.Attempt, gangstate.Outcome{}, nil, func(map[types.UID]string, gangstate.Effects) {})
	}
	fail()
	clear(s.acted)
	if s.Next(s.ctx); len(s.acted[testProfile].Activate) > 0 {
		t.Error("the gang is tried again although nothing has changed")
	}
	s.holds.ReportFreed()
	s.Next(s.ctx)
	if pods := s.acted[testProfile].Activate; len(pods) != 1 || pods[0].Name != "train-0" {
		t.Errorf("let in: %d pods, want the leader", len(pods))
	}
}

// TestVictimsThatGoOn: a pod whose binding is called off leaves the scheduler's cache, but has not ended. Nobody is to
// take it for gone when it comes to a node again.
func TestVictimsThatGoOn(t *testing.T) {
	s := newStage(t, testProfile)
	var left []types.UID
	s.OnLeft(func(pod types.UID, _ time.Time) bool {
		left = append(left, pod)
		return true
	})
	store := s.of(testProfile).handle.SharedInformerFactory().Core().V1().Pods().Informer().GetStore()
	for _, pod := range []*v1.Pod{
		st.MakePod().Name("goes-on").UID("1").Obj(), st.MakePod().Name("made-again").UID("3").Obj(), st.MakePod().Name("ends").UID("4").Terminating().Obj(),
	} {
		if err := store.Add(pod); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range []*v1.Pod{
		st.MakePod().Name("goes-on").UID("1").Node("n").Obj(), st.MakePod().Name("made-again").UID("2").Node("n").Obj(),
		st.MakePod().Name("ends").UID("4").Node("n").Obj(), st.MakePod().Name("gone").UID("5").Node("n").Obj(),
	} {
		s.Heard(framework.EventAssignedPodDelete, pod, nil)
	}
	if diff := cmp.Diff([]types.UID{"2", "4", "5"}, left); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
}

func (s *stage) mayChange(pod *v1.Pod) bool {
	awaits, _ := s.Awaits(pod)
	return awaits
}

// named is a framework handle of which only the name is used.
type named struct {
	fwk.Handle
	name string
}

func (n named) ProfileName() string { return n.name }

// TestWithoutProfiles: where no profile has gangs, nothing is watched, and nobody waits for victims.
func TestWithoutProfiles(t *testing.T) {
	r := New(ledger.New(), nil, watches.New())
	r.OnLeft(func(types.UID, time.Time) bool { return true })
	if err := r.Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	r.Heard(framework.EventAssignedPodDelete, st.MakePod().Name("p").UID("p").Node("n").Obj(), nil)
}
