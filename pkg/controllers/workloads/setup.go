package workloads

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/setup"
)

// name is the name of the controller in logs and metrics.
const name = "stages"

// Setup adds the controller to a manager. Where the API server does not serve PodGroups, or a kind of workload, the
// controller waits until it does.
func Setup(mgr manager.Manager) error {
	addToScheme(mgr.GetScheme())
	return setup.WhenServed(mgr, coscheduling.Kind, func(context.Context) error { return start(mgr) })
}

func start(mgr manager.Manager) error {
	r := &reconciler{client: mgr.GetClient()}
	c, err := builder.ControllerManagedBy(mgr).Named(name).
		Watches(&coscheduling.PodGroup{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(podGroups())).
		Build(r)
	if err != nil {
		return fmt.Errorf("starting the %s controller: %w", name, err)
	}
	for _, w := range workloads {
		if err := setup.WhenServed(mgr, w.kind, func(context.Context) error { return watch(mgr, c, r, w) }); err != nil {
			return err
		}
	}
	return nil
}

// watch queues the PodGroup with the name of a workload when that changes.
func watch(mgr manager.Manager, c controller.Controller, r *reconciler, w known) error {
	r.watched.Store(w.kind, true)
	changed := predicate.Or(predicate.TypedGenerationChangedPredicate[client.Object]{},
		predicate.TypedAnnotationChangedPredicate[client.Object]{})
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), w.empty(),
		&handler.EnqueueRequestForObject{}, changed)); err != nil {
		return fmt.Errorf("watching %ss: %w", w.kind.Kind, err)
	}
	return nil
}

// podGroups passes PodGroups that a workload owns, and changes of what is read of them.
func podGroups() predicate.Predicate {
	owned := func(object client.Object) bool {
		owner, _ := ownerOf(object)
		return owner != nil
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return owned(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return owned(e.ObjectNew) && differ(e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// differ reports whether a PodGroup has other owners, annotations of this package, or another spec.
func differ(was, is client.Object) bool {
	a, b := was.GetAnnotations(), is.GetAnnotations()
	return was.GetGeneration() != is.GetGeneration() ||
		!equality.Semantic.DeepEqual(was.GetOwnerReferences(), is.GetOwnerReferences()) ||
		a[v1alpha1.StagesAnnotation] != b[v1alpha1.StagesAnnotation] ||
		a[v1alpha1.MinAvailableAnnotation] != b[v1alpha1.MinAvailableAnnotation]
}
