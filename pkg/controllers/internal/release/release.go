// Package release gives back what was reserved for a PodMigration or a DefragmentationPlan, and then takes
// ReleaseFinalizer off it.
//
// An object that is being deleted loses the finalizer whatever its spec, its status and its name say: what was reserved
// for it is found by its UID, a name that no object can have is the name of none, and a status that the API server
// refuses does not matter.
//
// It does not decide when an object has ended: its controller does, and calls Finish from then on.
package release

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Finish deletes the Reservations with a label that were made for an object. Once none is left, it takes the finalizer
// off the object, and reports that it is done. It fails with a conflict if the object has changed since it was read.
func Finish(ctx context.Context, c client.Client, live client.Reader, object client.Object, writer client.FieldOwner,
	label string, made func(*v1alpha1.Reservation) bool,
) (done bool, err error) {
	if !controllerutil.ContainsFinalizer(object, v1alpha1.ReleaseFinalizer) {
		return true, nil
	}
	var list v1alpha1.ReservationList
	if err := live.List(ctx, &list, client.HasLabels{label}); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) { // neither is served: none is left
		return false, fmt.Errorf("listing Reservations: %w", err)
	}
	done = true
	for i := range list.Items {
		rsv := &list.Items[i]
		if !made(rsv) {
			continue
		}
		done = false
		if rsv.DeletionTimestamp != nil {
			continue // its finalizers are others'
		}
		if err := c.Delete(ctx, rsv, client.Preconditions{UID: &rsv.UID}); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("releasing Reservation %s: %w", rsv.Name, err)
		}
	}
	if !done {
		return false, nil
	}
	before, ok := object.DeepCopyObject().(client.Object)
	if !ok {
		return false, fmt.Errorf("copying %T: the copy is no object", object)
	}
	controllerutil.RemoveFinalizer(object, v1alpha1.ReleaseFinalizer)
	err = c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), writer)
	return true, client.IgnoreNotFound(err)
}

// Unimportant reports whether an error of writing the status of an object does not matter: the object is being deleted,
// and the API server refuses the status, and will again.
func Unimportant(object client.Object, err error) bool {
	return object.GetDeletionTimestamp() != nil && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err))
}

// Reader reads objects by names that users have written: a name that no object can have is the name of none. Without
// it, such a name is an error, which does not go away.
type Reader struct{ client.Reader }

// Get implements client.Reader.
func (r Reader) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	if key.Name == "" || len(content.IsPathSegmentName(key.Name)) > 0 || len(content.IsPathSegmentName(key.Namespace)) > 0 {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return r.Reader.Get(ctx, key, object, opts...)
}
