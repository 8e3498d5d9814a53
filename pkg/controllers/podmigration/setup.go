package podmigration

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/release"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
)

const (
	// name is the name of the controller in logs and metrics.
	name = "podmigration"
	// uidIndex is the name of the index of PodMigrations by UID, gangIndex that by the gang of their pod.
	uidIndex, gangIndex = "uid", "gang"
)

// Setup adds the controller to a manager. Where the API server does not serve PodMigrations, the controller waits until
// it does.
func Setup(mgr manager.Manager) error {
	if err := v1alpha1.AddToScheme(mgr.GetScheme()); err != nil {
		return fmt.Errorf("adding PodMigrations to the scheme: %w", err)
	}
	wait := manager.RunnableFunc(func(ctx context.Context) error {
		for _, kind := range []string{"PodMigration", "Reservation"} {
			if !crds.Await(ctx, mgr.GetRESTMapper(), v1alpha1.SchemeGroupVersion.WithKind(kind)) {
				return nil
			}
		}
		return start(ctx, mgr)
	})
	if err := mgr.Add(wait); err != nil {
		return fmt.Errorf("adding the %s controller: %w", name, err)
	}
	return nil
}

func start(ctx context.Context, mgr manager.Manager) error {
	registerMetrics()
	indexer := mgr.GetFieldIndexer()
	if err := indexer.IndexField(ctx, &v1alpha1.PodMigration{}, uidIndex,
		func(o client.Object) []string { return []string{string(o.GetUID())} }); err != nil {
		return fmt.Errorf("indexing PodMigrations by UID: %w", err)
	}
	if err := indexer.IndexField(ctx, &v1alpha1.PodMigration{}, gangIndex, gangOf); err != nil {
		return fmt.Errorf("indexing PodMigrations by gang: %w", err)
	}
	r := &reconciler{client: mgr.GetClient(), live: release.Reader{Reader: mgr.GetAPIReader()},
		recorder: mgr.GetEventRecorder(FieldOwner), clock: clock.RealClock{}}
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

func gangOf(object client.Object) []string {
	if m, ok := object.(*v1alpha1.PodMigration); ok && m.Spec.PodGroup != "" {
		return []string{m.Spec.PodGroup}
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
		if err := reader.List(ctx, &list, client.MatchingFields{uidIndex: uid}); err != nil {
			return nil // the process is shutting down: the cache does not fail otherwise
		}
		var requests []reconcile.Request
		for i := range list.Items {
			requests = append(requests,
				reconcile.Request{NamespacedName: types.NamespacedName{Namespace: list.Items[i].Namespace,
					Name: list.Items[i].Name}})
		}
		return requests
	}
}
