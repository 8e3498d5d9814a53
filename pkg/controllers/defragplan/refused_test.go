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
			start := time.Unix(1e9, 0)
			p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Finalizers: []string{v1alpha1.ReleaseFinalizer}}}
			p.Spec.Mode, p.Spec.Goal.PodGroup = v1alpha1.DefragmentationExecute, "a/goal"
			p.Status.Phase, p.Status.StartTime = v1alpha1.DefragmentationRunning, &metav1.Time{Time: start}
			p.Status.Moves = []v1alpha1.PlannedMove{{Namespace: "a", PodName: "p0", PodUID: "p0", SourceNode: "n0", TargetNode: "n1"}}
			p.Status.Places = []v1alpha1.PlannedPlace{{Namespace: "a", PodName: "goal-0", PodUID: "goal-0", NodeName: "n0", Members: 1}}
			meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1alpha1.DefragmentationFound, Status: metav1.ConditionTrue, Reason: "x"})
			barred := migrationFor(p, 0)
			barred.Spec.Suspend, barred.Status.Phase = false, v1alpha1.MigrationPending
			objects := []client.Object{p, barred, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "goal-0", UID: "goal-0"}}}
			for _, name := range []string{"n0", "n1"} {
				objects = append(objects, sample.Node(name, 1).Obj())
			}
			if c.taken {
				objects = append(objects, &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: "p-goal-0"}})
			}
			api := fakeapi.New(objects...).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(ctx context.Context, api client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if c.refusal != nil {
						return c.refusal
					}
					return api.Create(ctx, o, opts...)
				},
			}).Build()
			r := &reconciler{client: api, live: api, recorder: events.NewFakeRecorder(99), clock: testingclock.NewFakeClock(start), suspicions: map[types.UID]goalDoubt{}}
			for range 6 {
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
					t.Fatal(err)
				}
			}
			must.Succeed(t, api.Get(t.Context(), client.ObjectKeyFromObject(p), p))
			is := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.DefragmentationComplete)
			if p.Status.Phase != v1alpha1.DefragmentationFailed || is == nil || is.Reason != v1alpha1.DefragmentationReasonMoveFailed || !strings.Contains(is.Message, c.says) {
				t.Errorf("it is %s: %v", p.Status.Phase, is)
			}
			if err := api.Get(t.Context(), client.ObjectKeyFromObject(barred), barred); !apierrors.IsNotFound(err) {
				t.Errorf("its move is not cancelled: %v, %v", barred.DeletionTimestamp, err)
			}
		})
	}
}

// TestDeletedBesideKindsThatAreGone: a plan that is being deleted goes, although the kinds that it made are not served
// any more.
func TestDeletedBesideKindsThatAreGone(t *testing.T) {
	now := metav1.NewTime(time.Unix(1e9, 0))
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
	r := &reconciler{client: api, live: api, recorder: events.NewFakeRecorder(99), clock: testingclock.NewFakeClock(now.Time), suspicions: map[types.UID]goalDoubt{}}
	for range 4 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(p), p); !apierrors.IsNotFound(err) {
		t.Errorf("it is there still, with %v, %v", p.Finalizers, err)
	}
}
