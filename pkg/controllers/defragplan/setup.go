package defragplan

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/moves"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/setup"
)

// name is that of the controller in logs and metrics.
const name = "defragmentationplan"

// Setup adds the controller to a manager. Where the API server does not serve DefragmentationPlans, the controller
// waits until it does. One plan is worked on at a time. Plans that have ended are kept for so long; 0 keeps them.
func Setup(mgr manager.Manager, keepEnded time.Duration) error {
	if keepEnded < 0 {
		return fmt.Errorf("checking how long DefragmentationPlans that have ended are kept: %s is negative", keepEnded)
	}
	return setup.WhenServed(mgr, v1alpha1.SchemeGroupVersion.WithKind("DefragmentationPlan"), func(context.Context) error {
		return start(mgr, keepEnded)
	},
		v1alpha1.SchemeGroupVersion.WithKind("PodMigration"), v1alpha1.SchemeGroupVersion.WithKind("Reservation"))
}

func start(mgr manager.Manager, keepEnded time.Duration) error {
	r := &reconciler{client: client.WithFieldOwner(mgr.GetClient(), objects.FieldOwner),
		live:     moves.Reader{Reader: mgr.GetAPIReader()},
		recorder: mgr.GetEventRecorder(objects.FieldOwner), clock: clock.RealClock{}, keep: keepEnded,
		suspicions: map[types.UID]goalDoubt{}}
	err := builder.ControllerManagedBy(mgr).Named(name).
		For(&v1alpha1.DefragmentationPlan{}).
		Owns(&v1alpha1.PodMigration{}).
		Watches(&v1alpha1.Reservation{}, handler.EnqueueRequestsFromMapFunc(planOf)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("starting the %s controller: %w", name, err)
	}
	return nil
}

// planOf names the plan that a Reservation belongs to.
func planOf(_ context.Context, object client.Object) []reconcile.Request {
	if plan := object.GetLabels()[v1alpha1.PlanLabel]; plan != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: plan}}}
	}
	return nil
}
