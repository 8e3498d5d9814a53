package waitingroom

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/admission/registry"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

const testProfile = sample.Profile

// stage is a room for the gangs of a real registry, with one profile. Nothing runs.
type stage struct {
	*Room
	t       *testing.T
	ctx     context.Context
	profile *registry.Profile
	time    *clocktesting.FakeClock
	store   cache.Store
	// let are the pods that were let in since they were last looked at.
	let []string
	// victims are those that have not ended, by what they make room for; left those that have left the cache.
	victims map[hold.Holder]map[types.UID]bool
	left    []types.UID
	// kept are the leaders that something else keeps back.
	kept map[string]bool
	// book has the queues.
	book *queueing.Book
}

const gpu = sample.GPU

// handle is a framework handle of which only the name is used.
type handle struct{ fwk.Handle }

func (handle) ProfileName() string { return testProfile }

// Act notes which pods are let in.
func (s *stage) Act(_ context.Context, e gangstate.Effects) {
	for _, pod := range e.Activate {
		s.let = append(s.let, pod.Name)
	}
}

func (*stage) Gone(types.UID) {}

func (*stage) Explanation(gangspec.Key) (gangstate.Explanation, bool) {
	return gangstate.Explanation{}, false
}

func (s *stage) Victims(holder hold.Holder) int { return len(s.victims[holder]) }

func (s *stage) RecordEnd(pod types.UID, _ time.Time) (was bool) {
	s.left = append(s.left, pod)
	for _, victims := range s.victims {
		was = was || victims[pod]
		delete(victims, pod)
	}
	return was
}

// Activate notes which pods are let in.
func (s *stage) Activate(_ klog.Logger, pods map[string]*v1.Pod) {
	for _, pod := range pods {
		s.let = append(s.let, pod.Name)
	}
}

func (s *stage) Gated(pod *v1.Pod) bool { return s.kept[pod.Name] }

func (s *stage) moment() queueing.Moment {
	return queueing.Moment{Now: s.time.Now(), Synced: true, IsWaiting: func(string) bool { return true }}
}

// QueueOf and what follows are the queues, which have no gangs: those are let in as they come.
func (*stage) QueueOf(pod *v1.Pod) string { return pod.Labels["queue"] }

func (s *stage) AddCandidate(j turns.Job) {
	s.book.AddCandidate(queueing.Job{Name: j.Name, Queue: j.Queue, Created: j.Rank.Created})
}

func (s *stage) RemoveCandidate(name string) { s.book.RemoveCandidate(name) }

func (s *stage) First(which turns.Selection) (turns.Job, bool) {
	j, ok, _ := s.book.First(s.moment(), which)
	return turns.Job{Name: j.Name, Queue: j.Queue, Rank: turns.Rank{Created: j.Created, Name: j.Name}}, ok
}

func (s *stage) Admit(_ context.Context, job string) *v1.Pod {
	admitted, _ := s.book.Admit(job, s.moment())
	return sample.Pod(admitted.Pod).Obj()
}

func (*stage) TakePodsToActivate() []*v1.Pod { return nil }
func (*stage) RetryFirst()                   {}
func (*stage) Left(*v1.Pod)                  {}

// offer makes a pod come to the gate of its queue, made so many seconds after the others.
func (s *stage) offer(pod, queue string, after int) {
	s.book.Count(pod, queueing.Usage{Queue: queue, Job: pod, Amount: queueing.Vector{gpu: 1}})
	s.book.Offer(queueing.Job{
		Name: pod, Queue: queue, Pod: pod, Pods: []string{pod}, Created: time.Unix(int64(after), 0), Options: []queueing.Needs{{queue: {gpu: 1}}},
	}, s.moment())
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, ctx: t.Context(), time: clocktesting.NewFakeClock(time.Now()), victims: map[hold.Holder]map[types.UID]bool{}, kept: map[string]bool{}}
	holds := ledger.New()
	gangs := registry.New(holds, nil, watches.New())
	s.book = queueing.NewBook("default", nil)
	s.book.Configure(queueing.Limits{Window: 100}, queueing.Policies{})
	s.book.SetTotal(queueing.Vector{gpu: 8})
	s.Room = New(gangs, s, holds, s, s.time)
	s.queue = s
	gangs.SetRoom(s.Room)
	s.profile = gangs.Register(handle{}, gangspec.Defaults{WaitTime: time.Minute}, gangstate.Backoff{Initial: time.Second, Max: time.Second}, s)
	s.profile.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.Open(now) })
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	s.pods, s.store = factory.Core().V1().Pods().Lister(), factory.Core().V1().Pods().Informer().GetStore()
	return s
}

// come makes a gang of two.
func (s *stage) come(name string) {
	for i := range 2 {
		pod := member(name, i)
		s.profile.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.ObservePod(pod, now) })
	}
}

// member returns a member of gang default/name, which has two.
func member(name string, i int) *v1.Pod {
	return sample.Member(name, i, 2).Obj()
}

// ask calls Next and returns the group whose leader was let in, or an empty string if none was.
func (s *stage) ask() string {
	s.let = nil
	s.Next(s.ctx)
	if len(s.let) > 1 {
		s.t.Fatalf("%v were let in together", s.let)
	}
	if len(s.let) == 0 {
		return ""
	}
	return s.let[0][:len(s.let[0])-2]
}

// fail lets the attempt of a gang that has its turn fail.
func (s *stage) fail(name string) {
	s.t.Helper()
	leader := member(name, 0)
	s.HandleCycleStart(leader)
	s.profile.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects {
		v := g.BeginCycle(leader)
		if v.Verdict != gangstate.Lead {
			s.t.Fatalf("%s does not lead", leader.Name)
		}
		_, e := g.Planned(v.Attempt, gangstate.Outcome{}, now)
		return e
	})
}

// tries lets the attempts of all that are let in fail, and returns whose they were.
func (s *stage) tries() (tried []string) {
	for name := s.ask(); name != ""; name = s.ask() {
		tried = append(tried, name)
		s.fail(name)
	}
	slices.Sort(tried)
	return tried
}

func group(name string) hold.Holder {
	return hold.Holder{Profile: testProfile, Group: "default/" + name}
}

// gone tells that the scheduler's cache no longer has a pod on a node.
func (s *stage) gone(uid string) {
	s.HandleEvent(framework.EventAssignedPodDelete, st.MakePod().Name(uid).UID(uid).Node("n").Obj(), nil)
}

// TestNext: one after the other is let in; and once capacity was given back, the leader of a gang that it may help.
func TestNext(t *testing.T) {
	s := newStage(t)
	s.come("a")
	s.come("b")
	if first := s.ask(); first != "a" || s.ask() != "" {
		t.Fatalf("%q comes first, or not alone", first)
	}
	s.fail("a")
	if next := s.ask(); next != "b" {
		t.Errorf("%q is next, want b", next)
	}
	s.fail("b")
	if next := s.ask(); next != "" {
		t.Errorf("%q is tried again although nothing has changed", next)
	}
	s.holds.ReportFreed()
	if next := s.ask(); next != "a" {
		t.Errorf("%q is next once there is room, want a", next)
	}
}

// TestKept: a gang whose leader something else keeps back does not keep others waiting.
func TestKept(t *testing.T) {
	s := newStage(t)
	s.kept["a-0"] = true
	s.come("a")
	s.come("b")
	s.let = nil
	if s.Next(s.ctx); !slices.Equal(s.let, []string{"a-0", "b-0"}) {
		t.Errorf("let in: %v", s.let)
	}
}

// TestAwaitsItsOwnVictims: the explanation of a pod in no gang is not the last as long as victims make room for the
// pod.
func TestAwaitsItsOwnVictims(t *testing.T) {
	s := newStage(t)
	pod := st.MakePod().Name("p").UID("p").SchedulerName(testProfile).Obj()
	mine := hold.Holder{Profile: testProfile, Group: hold.SinglePod(pod.UID)}
	s.victims[mine] = map[types.UID]bool{"v": true}
	if awaits, _ := s.Awaits(pod); !awaits {
		t.Error("it awaits nothing while its victim ends")
	}
	s.gone("v")
	if awaits, _ := s.Awaits(pod); awaits {
		t.Error("it still awaits something")
	}
}

// TestVictimsEnd: a gang for which victims make room is tried again when the last of them is gone, or when something
// else has changed that may help it. Another gang, which waits without victims, may use what any of them leaves.
func TestVictimsEnd(t *testing.T) {
	s := newStage(t)
	s.victims[group("train")] = map[types.UID]bool{"v0": true, "v1": true, "v2": true}
	s.come("train")
	s.come("other")
	ends := func(uid string) func() { return func() { s.gone(uid) } }
	both := []string{"other", "train"}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"they came", func() {}, both},
		{"a victim ends", ends("v0"), []string{"other"}},
		{"another pod ends", ends("x"), both},
		{"a node comes", func() {
			s.HandleEvent(fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, st.MakeNode().Name("n").Obj())
		}, both},
		{"a second victim ends", ends("v1"), []string{"other"}},
		{"the last one ends", ends("v2"), both},
		{"nothing happens", func() {}, nil},
	} {
		step.do()
		if diff := cmp.Diff(step.want, s.tries()); diff != "" {
			t.Errorf("%s: attempts (-want +got):\n%s", step.what, diff)
		}
	}
}

// TestPodsThatLeaveTheCache: a pod leaves the scheduler's cache when it ends, and when its binding fails. Only if it
// has ended does it count as a victim that is gone, and only then does its nomination end.
func TestPodsThatLeaveTheCache(t *testing.T) {
	s := newStage(t)
	for _, uid := range []types.UID{"1", "2", "4", "5"} {
		s.holds.Nominate(hold.Hold{For: uid, Holder: hold.Holder{Group: hold.SinglePod(uid)}, Node: "n"})
	}
	for _, pod := range []*v1.Pod{
		st.MakePod().Name("goes-on").UID("1").Obj(), st.MakePod().Name("made-again").UID("3").Obj(), st.MakePod().Name("ends").UID("4").Terminating().Obj(),
	} {
		must.Succeed(t, s.store.Add(pod))
	}
	for _, pod := range []*v1.Pod{
		st.MakePod().Name("goes-on").UID("1").Node("n").Obj(), st.MakePod().Name("made-again").UID("2").Node("n").Obj(),
		st.MakePod().Name("ends").UID("4").Node("n").Obj(), st.MakePod().Name("gone").UID("5").Node("n").Obj(),
	} {
		s.HandleEvent(framework.EventAssignedPodDelete, pod, nil)
	}
	if diff := cmp.Diff([]types.UID{"2", "4", "5"}, s.left); diff != "" {
		t.Errorf("ended (-want +got):\n%s", diff)
	}
	want := map[hold.Holder][]types.UID{{Group: hold.SinglePod("1")}: {"1"}}
	if diff := cmp.Diff(want, s.holds.Nominations()); diff != "" {
		t.Errorf("nominations that are left (-want +got):\n%s", diff)
	}
}

// TestPassOn: who is next in the queues is decided when an event has brought all that it helps; and one after the other
// is let in, when the scheduling thread has taken the one before.
func TestPassOn(t *testing.T) {
	s := newStage(t)
	policies := queueing.Policies{QueueOrder: []config.PolicyName{config.PolicyPriority}}
	s.book.Configure(queueing.Limits{Window: 100}, policies)
	s.book.SetQueues(queueing.Queue{Name: "high", Weight: 1, Priority: 10}, queueing.Queue{Name: "low", Weight: 1, Priority: 1})
	s.Wait(s.ctx) // the thread waits for a pod
	s.PassOn(s.ctx, func() {}, func() {
		s.offer("older", "low", 1)
		if s.Room.ask(s.ctx); len(s.let) > 0 {
			t.Errorf("%v were let in before all had come", s.let)
		}
		s.offer("younger", "high", 2)
	})
	if !slices.Equal(s.let, []string{"younger"}) {
		t.Errorf("let in: %v, want the one of the higher queue", s.let)
	}
	s.HandleCycleStart(st.MakePod().Name("younger").UID("younger").Obj())
	if s.Room.ask(s.ctx); len(s.let) > 1 {
		t.Errorf("%v were let in while the thread is at work", s.let)
	}
	if s.Wait(s.ctx); !slices.Equal(s.let, []string{"younger", "older"}) {
		t.Errorf("let in: %v, want the other, too", s.let)
	}
}
