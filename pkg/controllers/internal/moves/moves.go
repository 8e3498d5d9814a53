// Package moves has what the controllers of PodMigrations and DefragmentationPlans share. Above all it gives back what
// was reserved for such an object, and then takes ReleaseFinalizer off it.
//
// An object that is being deleted loses the finalizer whatever its spec, its status and its name say: what was reserved
// for it is found by its UID, a name that no object can have is the name of none, and a status that the API server
// refuses does not matter.
//
// It does not decide when an object has ended: its controller does, and calls Finish from then on.
package moves

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// Retry is how soon to look again at what was changed just now, or had changed since it was read.
const Retry = 200 * time.Millisecond

// Result returns the result of a reconciliation after which an object is looked at again.
func Result(again time.Duration, err error) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: Retry}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// Served registers a metric that counts objects as they end, and returns it.
func Served(counter *metrics.CounterVec) *metrics.CounterVec {
	counter.Create(nil)
	ctrlmetrics.Registry.MustRegister(counter)
	return counter
}

// Patch writes what differs, and nothing else: of what cannot be changed Go might write the same in other words. It
// fails with a conflict if the object has changed since it was read.
func Patch(ctx context.Context, c client.Client, object, before client.Object) error {
	return c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// List lists objects with a label. Of a kind that is not served there are none.
func List(ctx context.Context, live client.Reader, list client.ObjectList, label string) error {
	err := live.List(ctx, list, client.HasLabels{label})
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	return nil
}

// Finish deletes the Reservations with a label that were made for an object. Once none is left, it takes the finalizer
// off the object. It returns when to look again whether any is left; 0 for never. It fails with a conflict if the
// object has changed since it was read.
func Finish(ctx context.Context, c client.Client, live client.Reader, object client.Object, label string,
	made func(*v1alpha1.Reservation) bool) (again time.Duration, err error) {
	if !controllerutil.ContainsFinalizer(object, v1alpha1.ReleaseFinalizer) {
		return 0, nil
	}
	var list v1alpha1.ReservationList
	if err := List(ctx, live, &list, label); err != nil {
		return 0, err
	}
	for i := range list.Items {
		rsv := &list.Items[i]
		if !made(rsv) {
			continue
		}
		again = Retry
		if rsv.DeletionTimestamp != nil {
			continue // its finalizers are others'
		}
		if err := c.Delete(ctx, rsv, client.Preconditions{UID: &rsv.UID}); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("releasing Reservation %s: %w", rsv.Name, err)
		}
	}
	if again > 0 {
		return again, nil
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return 0, fmt.Errorf("copying %T: the copy is no object", object)
	}
	controllerutil.RemoveFinalizer(object, v1alpha1.ReleaseFinalizer)
	return 0, client.IgnoreNotFound(Patch(ctx, c, object, before))
}

// Unimportant reports whether an error of writing the status of an object does not matter: the object is being deleted,
// and the API server refuses the status, and will again.
func Unimportant(object client.Object, err error) bool {
	return object.GetDeletionTimestamp() != nil && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) ||
		apierrors.IsBadRequest(err))
}

// Reader reads objects by names that users have written: a name that no object can have is the name of none. Without
// it, such a name is an error, which does not go away.
type Reader struct{ client.Reader }

// Get implements client.Reader.
func (r Reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if key.Name == "" || len(content.IsPathSegmentName(key.Name)) > 0 ||
		len(content.IsPathSegmentName(key.Namespace)) > 0 {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return r.Reader.Get(ctx, key, object, opts...)
}

// Node reads a node. It returns why it takes no pods; empty if it does.
func Node(ctx context.Context, live client.Reader, name string) (node *v1.Node, why string, err error) {
	node = &v1.Node{}
	err = live.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Sprintf("node %s is gone", name), nil
	case err != nil:
		return nil, "", fmt.Errorf("reading node %s: %w", name, err)
	case node.Spec.Unschedulable:
		return nil, fmt.Sprintf("node %s is cordoned", name), nil
	case !objectstate.IsReady(node):
		return nil, fmt.Sprintf("node %s is not ready", name), nil
	}
	return node, "", nil
}

// Pod reads a pod; nil if it is gone.
func Pod(ctx context.Context, live client.Reader, key client.ObjectKey) (*v1.Pod, error) {
	pod := &v1.Pod{}
	switch err := live.Get(ctx, key, pod); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", key, err)
	}
	return pod, nil
}
