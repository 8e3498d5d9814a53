package defragplan

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// startOfPlan is when the plans here begin.
var startOfPlan = time.Unix(1e9, 0)

// TestHoldThatCannotBeMade: a plan that cannot hold what it frees says so and ends, and cancels what has not begun.
func TestHoldThatCannotBeMade(t *testing.T) {
	for sentence, c := range map[string]struct {
		refusal error
		taken   bool
		says    string
	}{
		"a policy is against it": {refusal: apierrors.NewInvalid(schema.GroupKind{Kind: "Reservation"}, "p-goal-0", nil), says: "invalid"},
		"another has its name":   {taken: true, says: "there is another one of the name p-goal-0"},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := runningPlan()
			p.Spec.Goal.PodGroup = "a/goal"
			p.Status.Moves = []v1alpha1.PlannedMove{{Namespace: "a", PodName: "p0", PodUID: "p0", SourceNode: "n0", TargetNode: "n1"}}
			p.Status.Places = []v1alpha1.PlannedPlace{{Namespace: "a", PodName: "goal-0", PodUID: "goal-0", NodeName: "n0", Members: 1}}
			barred := migrationFor(p, 0)
			barred.Spec.Suspend, barred.Status.Phase = false, v1alpha1.MigrationPending
			objects := []client.Object{p, barred, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "goal-0", UID: "goal-0"}}}
			for _, name := range []string{"n0", "n1"} {
				objects = append(objects, sample.Node(name, 1).Obj())
			}
			if c.taken {
				objects = append(objects, &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "p-goal-0"}})
			}
			api := failsOnCreate(t, p, c.refusal, c.says, objects...)
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(barred), barred); !apierrors.IsNotFound(err) {
				t.Errorf("its move is not cancelled: %v, %v", barred.DeletionTimestamp, err)
			}
		})
	}
}

// TestMigrationThatCannotBeMade: the plan ends, and says why. It does not wait for ever in what it holds.
func TestMigrationThatCannotBeMade(t *testing.T) {
	resource := schema.GroupResource{Group: v1alpha1.GroupName, Resource: "podmigrations"}
	for name, c := range map[string]struct {
		refusal error
		taken   bool
		says    string
	}{
		"its namespace is gone":    {refusal: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "b"), says: "b/p1: its PodMigration cannot be made: namespaces \"b\" not found"},
		"a quota is used up":       {refusal: apierrors.NewForbidden(resource, "p-1", nil), says: "forbidden"},
		"a policy is against it":   {refusal: apierrors.NewInvalid(schema.GroupKind{Kind: "PodMigration"}, "p-1", nil), says: "invalid"},
		"another one has its name": {taken: true, says: "there is another one of the name p-1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := runningPlan()
			p.Spec.Goal.Shape, p.Status.MovedCount = &v1alpha1.GangShape{Members: 1}, 1
			p.Status.Moves = []v1alpha1.PlannedMove{
				{Namespace: "a", PodName: "p0", PodUID: "p0", SourceNode: "n0", TargetNode: "n1", Phase: v1alpha1.MigrationSucceeded},
				{Namespace: "b", PodName: "p1", PodUID: "p1", SourceNode: "n2", TargetNode: "n0", After: []int32{0}},
			}
			done := migrationFor(p, 0)
			done.Status.Phase = v1alpha1.MigrationSucceeded
			objects := []client.Object{p, done}
			if c.taken {
				objects = append(objects, &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "p-1"}})
			}
			failsOnCreate(t, p, c.refusal, c.says, objects...)
			if len(p.Finalizers) > 0 {
				t.Errorf("it still holds something: %v", p.Finalizers)
			}
		})
	}
}

// TestDeletedBesideKindsThatAreGone: a plan that is being deleted goes, although the kinds that it made are not served
// any more.
func TestDeletedBesideKindsThatAreGone(t *testing.T) {
	now := metav1.NewTime(startOfPlan)
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Finalizers: []string{v1alpha1.ReleaseFinalizer}, DeletionTimestamp: &now}}
	p.Status.Phase = v1alpha1.DefragmentationPlanned
	p.Status.Moves = []v1alpha1.PlannedMove{{Namespace: "a", PodName: "p0", PodUID: "p0", SourceNode: "n0", TargetNode: "n1"}}
	api := fakeapi.New(p).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			switch list.(type) {
			case *v1alpha1.PodMigrationList:
				return &meta.NoKindMatchError{}
			case *v1alpha1.ReservationList:
				return apierrors.NewNotFound(schema.GroupResource{}, "")
			}
			return api.List(ctx, list, opts...)
		},
	}).Build()
	reconcileTimes(t, 4, api, p)
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
		t.Errorf("it is there still, with %v, %v", p.Finalizers, err)
	}
}

// runningPlan returns a plan that began at startOfPlan, without its goal and moves.
func runningPlan() *v1alpha1.DefragmentationPlan {
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Finalizers: []string{v1alpha1.ReleaseFinalizer}}}
	p.Spec.Mode = v1alpha1.DefragmentationExecute
	p.Status.Phase, p.Status.StartTime = v1alpha1.DefragmentationRunning, &metav1.Time{Time: startOfPlan}
	meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1alpha1.DefragmentationFound, Status: metav1.ConditionTrue, Reason: "x"})
	return p
}

// failsOnCreate runs a plan against an API that answers each creation with the refusal, unless that is nil, and checks
// that the plan fails and says why. It reads the plan back, and returns the API.
func failsOnCreate(t *testing.T, p *v1alpha1.DefragmentationPlan, refusal error, says string, objects ...client.Object) client.Client {
	t.Helper()
	api := fakeapi.New(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if refusal != nil {
				return refusal
			}
			return api.Create(ctx, o, opts...)
		},
	}).Build()
	reconcileTimes(t, 6, api, p)
	must.Succeed(t, api.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	is := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.DefragmentationComplete)
	if p.Status.Phase != v1alpha1.DefragmentationFailed || is == nil || is.Reason != v1alpha1.DefragmentationReasonMoveFailed || !strings.Contains(is.Message, says) {
		t.Errorf("it is %s: %v", p.Status.Phase, is)
	}
	return api
}

// reconcileTimes reconciles a plan n times, at startOfPlan.
func reconcileTimes(t *testing.T, n int, api client.WithWatch, p *v1alpha1.DefragmentationPlan) {
	t.Helper()
	r := &reconciler{client: api, live: api, recorder: events.NewFakeRecorder(99), clock: testingclock.NewFakeClock(startOfPlan), suspicions: map[types.UID]goalDoubt{}}
	for range n {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
			t.Fatal(err)
		}
	}
}
