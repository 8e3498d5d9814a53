package defragplan

import (
	"context"
	"strings"
	"testing"
	"time"

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
)

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
			start := time.Unix(1e9, 0)
			p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p", Finalizers: []string{v1alpha1.ReleaseFinalizer}}}
			p.Spec.Mode, p.Spec.Goal.Shape = v1alpha1.DefragmentationExecute, &v1alpha1.GangShape{Members: 1}
			p.Status.Phase, p.Status.StartTime, p.Status.MovedCount = v1alpha1.DefragmentationRunning, &metav1.Time{Time: start}, 1
			p.Status.Moves = []v1alpha1.PlannedMove{
				{Namespace: "a", PodName: "p0", PodUID: "p0", SourceNode: "n0", TargetNode: "n1", Phase: v1alpha1.MigrationSucceeded},
				{Namespace: "b", PodName: "p1", PodUID: "p1", SourceNode: "n2", TargetNode: "n0", After: []int32{0}},
			}
			meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: v1alpha1.DefragmentationFound, Status: metav1.ConditionTrue, Reason: "x"})
			done := migrationFor(p, 0)
			done.Status.Phase = v1alpha1.MigrationSucceeded
			objects := []client.Object{p, done}
			if c.taken {
				objects = append(objects, &v1alpha1.PodMigration{ObjectMeta: metav1.ObjectMeta{Namespace: "b", Name: "p-1"}})
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
			if p.Status.Phase != v1alpha1.DefragmentationFailed || is.Reason != v1alpha1.DefragmentationReasonMoveFailed || !strings.Contains(is.Message, c.says) {
				t.Errorf("it is %s: %v", p.Status.Phase, is)
			}
			if len(p.Finalizers) > 0 {
				t.Errorf("it still holds something: %v", p.Finalizers)
			}
		})
	}
}
