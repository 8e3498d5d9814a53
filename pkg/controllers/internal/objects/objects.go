// Package objects reads and writes objects as controllers do: from a cache that may be behind, and only what has not
// changed since.
package objects

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// FieldOwner is the field manager of what controllers write.
const FieldOwner = gangspec.LockstepController

// Read reads an object from the cache, which must not be changed; false if there is none.
func Read(ctx context.Context, from client.Reader, key client.ObjectKey, object client.Object) (bool, error) {
	err := from.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading %T %s: %w", object, key, err)
	}
	return err == nil, nil
}

// PatchStatus makes the status of an object what it is in another version, provided that the object has not changed
// since it was read: lists are replaced as a whole, and others write there, too.
func PatchStatus(ctx context.Context, c client.Client, before, after client.Object) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return c.Status().Patch(ctx, after, patch, client.FieldOwner(FieldOwner))
}

// WriteResult returns what follows from a write, which what names: it is tried again later if the cache was behind, and
// not if the object is gone.
func WriteResult(err error, later time.Duration, what string) (reconcile.Result, error) {
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: later}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("writing %s: %w", what, err)
	}
	return reconcile.Result{}, nil
}

// longest is the longest time between two looks at what waits for a time: timers stand still while a machine is
// suspended, and do not know when its clock is set.
const longest = 10 * time.Minute

// Until returns after how long to look again at what waits for a time, which may have come by now.
func Until(then, now time.Time) time.Duration {
	return min(max(then.Sub(now), time.Millisecond), longest) // controller-runtime takes 0 for never
}

// Collect deletes an object that ended so long ago, and returns when to look again if it did not; 0 for never. What is
// to be kept for no time is kept for ever. It fails with a conflict if the object has changed since it was read.
func Collect(ctx context.Context, c client.Client, object client.Object, ended *metav1.Time, keep time.Duration,
	now time.Time) (time.Duration, error) {
	if keep == 0 || ended == nil || object.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	if end := ended.Add(keep); now.Before(end) {
		return Until(end, now), nil
	}
	uid, version := object.GetUID(), object.GetResourceVersion()
	err := c.Delete(ctx, object, client.Preconditions{UID: &uid, ResourceVersion: &version})
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("deleting %T %s: %w", object, object.GetName(), err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted what has ended", "object", klog.KObj(object), "ended", ended.Time)
	return 0, nil
}
