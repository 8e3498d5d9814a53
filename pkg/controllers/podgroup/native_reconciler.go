package podgroup

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/setup"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstatus"
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
func SetupNative(mgr manager.Manager, schedulers []string, workers int) error {
	return setup.WhenServed(mgr, nativeKind, func(ctx context.Context) error {
		r := &nativeReconciler{follower: follower{client: mgr.GetClient(), clock: clock.RealClock{}, name: nativeName},
			schedulers: sets.New(schedulers...)}
		return r.start(ctx, mgr, &schedulingv1beta1.PodGroup{}, coscheduling.Kind, &coscheduling.PodGroup{}, r, workers)
	})
}

// Reconcile implements reconcile.Reconciler.
func (r *nativeReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pg := &schedulingv1beta1.PodGroup{}
	found, groups, pods, err := r.read(ctx, request.NamespacedName, pg, &coscheduling.PodGroup{})
	if err != nil || !found {
		return reconcile.Result{}, err
	}
	pods = slices.DeleteFunc(pods, func(pod *v1.Pod) bool { return !r.schedulers.Has(pod.Spec.SchedulerName) })
	if len(pods) == 0 {
		return reconcile.Result{}, nil
	}
	known := r.historyOf(request.NamespacedName, func() *gangstate.History { return &gangstate.History{} })
	object := groups[gangspec.Native]
	if !object.MakesNoGang() {
		object = groups.Object()
	}
	facts := gangstatus.FactsOf(gangspec.Key(request.NamespacedName), object, pods, &known.History)
	want := gangstatus.NativeConditions(pg, pods, facts, metav1.NewTime(r.clock.Now()))
	if equality.Semantic.DeepEqual(pg.Status.Conditions, want) {
		return reconcile.Result{}, nil
	}
	written := pg.DeepCopy()
	written.Status.Conditions = want
	return objects.WriteResult(objects.PatchStatus(ctx, r.client, pg, written), settle,
		fmt.Sprintf("the status of PodGroup %s", request.NamespacedName))
}
