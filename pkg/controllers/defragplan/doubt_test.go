package defragplan

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestPassing: what is said of a goal is believed once it was said long enough, each time that it was looked.
func TestPassing(t *testing.T) {
	r := &reconciler{suspicions: map[types.UID]goalDoubt{}}
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{UID: "p"}}
	begin := time.Now()
	for _, step := range []struct {
		after  time.Duration
		why    string
		unsaid bool
		want   bool
	}{
		{0, "full", false, true},
		{8 * time.Second, "full", false, true},
		{12 * time.Second, "", false, false}, // it was wrong
		{14 * time.Second, "full", false, true},
		{22 * time.Second, "full", false, true},
		{28 * time.Second, "full", false, true},
		{30 * time.Second, "closed", false, false}, // whatever it is
		{32 * time.Second, "closed", false, false},
		{60 * time.Second, "full", false, true},   // it is not known how it was meanwhile
		{64 * time.Second, "silence", true, true}, // it was made anew
		{72 * time.Second, "silence", true, true},
		{76 * time.Second, "full", false, false}, // what was said before counts
		{78 * time.Second, "silence", true, true},
		{86 * time.Second, "silence", true, true},
		{94 * time.Second, "silence", true, false}, // its scheduler is not there, or has nothing to say
		{96 * time.Second, "silence", true, false},
	} {
		if got := r.mayPass(p, step.why, !step.unsaid, begin.Add(step.after)); got != step.want {
			t.Errorf("after %s: %t", step.after, got)
		}
	}
	if r.mayPass(p, "", true, begin); len(r.suspicions) > 0 {
		t.Errorf("it is remembered: %v", r.suspicions)
	}
}

// TestDoubtStopsWhoWasLetGo: of two pods whose successors are alike one moves at a time, and both were let go together.
// The second stays as long as the goal is said not to start, also where the controller starts anew meanwhile; and for
// good once that is believed.
func TestDoubtStopsWhoWasLetGo(t *testing.T) {
	w := newDoubtStage(t)
	w.bring(time.Second)
	if w.second().Spec.Suspend {
		t.Fatal("nothing is said, and it may not go")
	}
	w.say(string(queueing.Closed))
	w.bring(time.Second)
	if !w.second().Spec.Suspend {
		t.Fatal("it may go for a goal that is said not to start")
	}
	w.say("")
	w.bring(time.Second)
	if w.second().Spec.Suspend {
		t.Fatal("the goal may start again, and it may not go")
	}
	w.say(string(queueing.Closed))
	w.bring(doubtFor - 2*time.Second)
	w.r.suspicions = map[types.UID]goalDoubt{} // by another controller
	w.bring(doubtFor - 2*time.Second)
	if m := w.second(); m == nil || !m.Spec.Suspend {
		t.Fatal("it is believed too soon, or it may go")
	}
	w.bring(4 * time.Second)
	if w.second() != nil {
		t.Error("it is not believed")
	}
	if c := meta.FindStatusCondition(w.plan().Status.Conditions, v1alpha1.DefragmentationComplete); c.Reason != v1alpha1.DefragmentationReasonMoveFailed {
		t.Errorf("the plan says %v", c)
	}
}

// TestDoubtComesTooLate: the target of a move is open to the successor already, and its pod is evicted in a moment.
func TestDoubtComesTooLate(t *testing.T) {
	w := newDoubtStage(t)
	m := w.second()
	meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MigrationEvicted).Reason = v1alpha1.MigrationReasonEvicting
	must.Succeed(t, w.Status().Update(t.Context(), m))
	w.say(string(queueing.Closed))
	w.bring(3 * time.Second)
	if w.second().Spec.Suspend {
		t.Error("it is suspended, and a pod may come to its target instead of the successor")
	}
}

// TestDoubtLastsWhereItsGoalIsMadeAnew: nothing is said yet of a goal that is made anew, which does not mean that it
// would start.
func TestDoubtLastsWhereItsGoalIsMadeAnew(t *testing.T) {
	w := newDoubtStage(t)
	w.say(string(queueing.Closed))
	w.bring(time.Second)
	goal := w.goal()
	must.Succeed(t, w.Delete(t.Context(), goal))
	goal = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "goal", UID: "another", Labels: goal.Labels}}
	must.Succeed(t, w.Create(t.Context(), goal))
	w.bring(3 * time.Second)
	if m := w.second(); m == nil || !m.Spec.Suspend {
		t.Error("it may go although nobody knows whether the goal would start")
	}
	w.bring(doubtFor)
	if m := w.second(); m == nil || m.Spec.Suspend {
		t.Error("it may not go although nothing is said of the goal for long")
	}
}

// TestGoneGoalIsPolled: what is freed cannot be held for a goal that is gone, and the plan looks for it no more often
// than else.
func TestGoneGoalIsPolled(t *testing.T) {
	w := newDoubtStage(t)
	for _, gone := range []client.Object{w.goal(), holdFor(w.plan(), 0, w.goal(), "")} {
		must.Succeed(t, w.Delete(t.Context(), gone))
	}
	w.bring(2 * time.Second) // it says so, and suspends what has not begun
	again, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "p"}})
	if err != nil || again.RequeueAfter != poll {
		t.Errorf("it looks again in %s, %v; want %s", again.RequeueAfter, err, poll)
	}
}

// doubtStage is a plan of two moves, the first of which is under way.
type doubtStage struct {
	*testing.T
	client.Client
	r     *reconciler
	clock *testingclock.FakeClock
}

func newDoubtStage(t *testing.T) *doubtStage {
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Finalizers: []string{v1alpha1.ReleaseFinalizer}}}
	p.Spec.Mode, p.Spec.Goal.PodGroup = v1alpha1.DefragmentationExecute, "ns/goal"
	p.Status.Phase, p.Status.Goal = v1alpha1.DefragmentationRunning, "gang ns/goal"
	p.Status.Conditions = []metav1.Condition{{Type: v1alpha1.DefragmentationFound, Status: metav1.ConditionTrue, Reason: v1alpha1.DefragmentationReasonFound}}
	p.Status.Places = []v1alpha1.PlannedPlace{{Namespace: "ns", PodName: "goal", PodUID: "goal", NodeName: "node", Members: 1}}
	goal := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "goal", UID: "goal"}}
	objects := []client.Object{goal, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourcePods: resource.MustParse("9")}}}, holdFor(p, 0, goal, "")}
	for i := range 2 {
		p.Status.Moves = append(p.Status.Moves, v1alpha1.PlannedMove{Namespace: "ns", PodName: fmt.Sprint("moved-", i)})
		m := migrationFor(p, i)
		m.UID, m.Spec.Suspend, m.Status.Phase = types.UID(m.Name), false, v1alpha1.MigrationPending
		m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.MigrationReserved, Status: metav1.ConditionTrue}, {Type: v1alpha1.MigrationEvicted, Reason: v1alpha1.MigrationReasonWaiting}}
		if i == 0 {
			m.Status.Phase, m.Status.Conditions[1].Status, m.Status.Conditions[1].Reason = v1alpha1.MigrationRunning, metav1.ConditionTrue, v1alpha1.MigrationReasonEvicted
		}
		objects = append(objects, m)
	}
	api := fakeapi.New(append(objects, p)...).
		WithIndex(&v1.Pod{}, "spec.nodeName", func(object client.Object) []string { return []string{object.(*v1.Pod).Spec.NodeName} }).Build()
	now := testingclock.NewFakeClock(time.Unix(1000, 0))
	r := &reconciler{client: api, live: api, recorder: events.NewFakeRecorder(99), clock: now, suspicions: map[types.UID]goalDoubt{}}
	return &doubtStage{T: t, Client: api, r: r, clock: now}
}

// bring brings the plan on for a while, as it asks for.
func (w *doubtStage) bring(long time.Duration) {
	w.Helper()
	for end := w.clock.Now().Add(long); w.clock.Now().Before(end); {
		again, err := w.r.Reconcile(w.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "p"}})
		if err != nil || again.RequeueAfter == 0 || again.RequeueAfter > poll {
			w.Fatalf("%v, %v", again, err)
		}
		w.clock.Step(again.RequeueAfter)
	}
}

// say has the goal's scheduler say why it waits; empty for nothing.
func (w *doubtStage) say(reason string) {
	pod := w.goal()
	pod.Status.Conditions = nil
	if reason != "" {
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: "it is said"}}
	}
	must.Succeed(w, w.Status().Update(w.Context(), pod))
}

func (w *doubtStage) goal() *v1.Pod {
	pod := &v1.Pod{}
	must.Succeed(w, w.Get(w.Context(), client.ObjectKey{Namespace: "ns", Name: "goal"}, pod))
	return pod
}

// second is the PodMigration of the second move; nil if there is none.
func (w *doubtStage) second() *v1alpha1.PodMigration {
	m := &v1alpha1.PodMigration{}
	if err := w.Get(w.Context(), client.ObjectKey{Namespace: "ns", Name: "p-1"}, m); err != nil {
		return nil
	}
	return m
}

func (w *doubtStage) plan() *v1alpha1.DefragmentationPlan {
	p := &v1alpha1.DefragmentationPlan{}
	must.Succeed(w, w.Get(w.Context(), client.ObjectKey{Name: "p"}, p))
	return p
}
