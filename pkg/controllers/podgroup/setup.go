package podgroup

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/setup"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// name is the name of the controller of community PodGroups in logs and metrics.
const name = "podgroup"

// named is the gang that a pod names.
var named setup.Concern[*v1.Pod] = func(pod *v1.Pod) (types.NamespacedName, bool) {
	key, _, ok := gangspec.KeyOf(pod)
	return types.NamespacedName(key), ok
}

// Setup adds the controller to a manager. Where the API server does not serve
// PodGroups, the controller waits until it does; pods are watched from when there
// is a PodGroup, so that gangs by annotation cost nothing here. As many PodGroups as there are workers are written at a
// time.
func Setup(mgr manager.Manager, workers int) error {
	return setup.WhenServed(mgr, coscheduling.Kind, func(ctx context.Context) error {
		r := &reconciler{follower: follower{client: mgr.GetClient(), clock: clock.RealClock{}, name: name},
			recorder: mgr.GetEventRecorder(objects.FieldOwner), jobs: mgr.GetAPIReader()}
		return r.start(ctx, mgr, &coscheduling.PodGroup{}, nativeKind, &schedulingv1beta1.PodGroup{}, r, workers)
	})
}

// start starts a controller of PodGroups of the kind of group. Pods are watched from when there is one, and PodGroups
// of the other kind from when they are served.
func (f *follower) start(ctx context.Context, mgr manager.Manager, group client.Object,
	otherKind schema.GroupVersionKind, other client.Object, r reconcile.Reconciler, workers int) error {
	return f.pods.Prepare(func() (func() error, error) {
		c, err := builder.ControllerManagedBy(mgr).Named(f.name).
			Watches(group, setup.Enqueue(settle, setup.Itself)).
			WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
			Build(r)
		if err != nil {
			return nil, fmt.Errorf("starting the %s controller: %w", f.name, err)
		}
		watchOthers := func(context.Context) error {
			f.othersServed.Store(true)
			return c.Watch(source.Kind(mgr.GetCache(), other, setup.Enqueue(settle, setup.Itself)))
		}
		return func() error { return f.watchPods(ctx, mgr, c) }, setup.WhenServed(mgr, otherKind, watchOthers)
	})
}

func (f *follower) watchPods(ctx context.Context, mgr manager.Manager, c controller.Controller) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1.Pod{}, f.name, named.Index); err != nil {
		return fmt.Errorf("indexing pods by gang: %w", err)
	}
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &v1.Pod{},
		setup.Enqueue(settle, named.Requests))); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}
