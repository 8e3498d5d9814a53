package podmigration

import (
	"context"
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/moves"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/setup"
)

// name is the name of the controller in logs and metrics.
const name = "podmigration"

// Setup adds the controller to a manager. Where the API server does not serve PodMigrations, the controller waits until
// it does.
func Setup(mgr manager.Manager) error {
	return setup.WhenServed(mgr, v1alpha1.SchemeGroupVersion.WithKind("PodMigration"), func(context.Context) error {
		return start(mgr)
	},
		v1alpha1.SchemeGroupVersion.WithKind("Reservation"))
}

func start(mgr manager.Manager) error {
	r := &reconciler{client: client.WithFieldOwner(mgr.GetClient(), objects.FieldOwner),
		live:     moves.Reader{Reader: mgr.GetAPIReader()},
		recorder: mgr.GetEventRecorder(objects.FieldOwner), clock: clock.RealClock{}}
	err := builder.ControllerManagedBy(mgr).Named(name).
		For(&v1alpha1.PodMigration{}).
		Watches(&v1alpha1.Reservation{}, handler.EnqueueRequestsFromMapFunc(ownerOf(mgr.GetClient()))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}). // see alike
		Complete(r)
	if err != nil {
		return fmt.Errorf("starting the %s controller: %w", name, err)
	}
	return nil
}

// ownerOf finds the PodMigration that a Reservation was made for.
func ownerOf(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		uid := object.GetLabels()[v1alpha1.MigrationLabel]
		if uid == "" {
			return nil
		}
		var list v1alpha1.PodMigrationList
		if err := reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return nil // the process is shutting down: the cache does not fail otherwise
		}
		for i := range list.Items {
			if m := &list.Items[i]; string(m.UID) == uid {
				return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(m)}}
			}
		}
		return nil
	}
}
