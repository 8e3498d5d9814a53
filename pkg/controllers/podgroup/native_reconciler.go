package podgroup

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// nativeName is the name of the controller of native PodGroups in logs and metrics.
const nativeName = "native-podgroup"

var nativeKind = schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")

// nativeReconciler keeps the status of native PodGroups up to date.
type nativeReconciler struct {
	follower
	// schedulers are those that leave the status to this controller.
	schedulers sets.Set[string]
}

// SetupNative adds the controller of native PodGroups to a manager: of those whose pods name one of
// these schedulers. Until the API server serves them, it waits.
func SetupNative(mgr manager.Manager, schedulers []string, o Options) error {
	wait := manager.RunnableFunc(func(ctx context.Context) error {
		if !crds.Await(ctx, mgr.GetRESTMapper(), nativeKind) {
			return nil
		}
		return startNative(ctx, mgr, sets.New(schedulers...), o)
	})
	if err := mgr.Add(wait); err != nil {
		return fmt.Errorf("adding the %s controller: %w", nativeName, err)
	}
	return nil
}

func startNative(ctx context.Context, mgr manager.Manager, schedulers sets.Set[string], o Options) error {
	r := &nativeReconciler{follower: follower{client: mgr.GetClient(), clock: clock.RealClock{}, joins: grouped},
		schedulers: schedulers}
	return r.pods.Prepare(func() (func() error, error) {
		c, err := builder.ControllerManagedBy(mgr).Named(nativeName).
			Watches(&schedulingv1beta1.PodGroup{}, podGroupEvents(&r.gathering)).
			WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers}).
			Build(r)
		if err != nil {
			return nil, fmt.Errorf("starting the %s controller: %w", nativeName, err)
		}
		return func() error { return r.watchPods(ctx, mgr, c) }, nil
	})
}

// Reconcile implements reconcile.Reconciler.
func (r *nativeReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	r.gathering.done(request.NamespacedName)
	pg := &schedulingv1beta1.PodGroup{} // from the cache, and not to be changed
	err := r.client.Get(ctx, request.NamespacedName, pg, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		r.histories.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading PodGroup %s: %w", request.NamespacedName, err)
	}
	pods, err := r.members(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	pods = slices.DeleteFunc(pods, func(pod *v1.Pod) bool { return !r.schedulers.Has(pod.Spec.SchedulerName) })
	if len(pods) == 0 {
		return reconcile.Result{}, nil
	}
	facts := observe(gangstate.Key(request.NamespacedName), gangstate.ReadNative(pg), pods,
		r.histories.of(request.NamespacedName))
	want := nativeConditions(pg, pods, facts, metav1.NewTime(r.clock.Now()))
	if equality.Semantic.DeepEqual(pg.Status.Conditions, want) {
		return reconcile.Result{}, nil
	}
	written := pg.DeepCopy()
	written.Status.Conditions = want
	err = r.client.Status().Patch(ctx, written, client.MergeFromWithOptions(pg, client.MergeFromWithOptimisticLock{}),
		client.FieldOwner(FieldOwner))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: settle}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("writing the status of PodGroup %s: %w", request.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}
