// Package workloop does what is in a work queue.
package workloop

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Run does what is in a queue, one item after the other, until ctx is done. If an item fails, that is logged with a
// message, unless something was written to that had changed since it was read; and the item is tried again after a
// pause that the queue chooses.
func Run[T comparable](ctx context.Context, queue workqueue.TypedRateLimitingInterface[T],
	do func(context.Context, T) error, failed string) {
	defer context.AfterFunc(ctx, queue.ShutDown)()
	for {
		item, down := queue.Get()
		if down {
			return
		}
		if err := do(ctx, item); err == nil || ctx.Err() != nil {
			queue.Forget(item)
		} else {
			if !apierrors.IsConflict(err) {
				klog.FromContext(ctx).Error(err, failed, "item", item)
			}
			queue.AddRateLimited(item)
		}
		queue.Done(item)
	}
}
