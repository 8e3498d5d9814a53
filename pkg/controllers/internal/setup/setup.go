// Package setup has what the setups of controllers share: a controller starts when the API server serves what it is
// about, and its watches queue what their events concern.
package setup

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
)

// WhenServed adds to a manager what starts when the API server serves a kind, and all others that are given.
func WhenServed(mgr manager.Manager, kind schema.GroupVersionKind, start func(context.Context) error,
	others ...schema.GroupVersionKind) error {
	wait := manager.RunnableFunc(func(ctx context.Context) error {
		for _, one := range append([]schema.GroupVersionKind{kind}, others...) {
			if !crds.Await(ctx, mgr.GetRESTMapper(), one) {
				return nil
			}
		}
		return start(ctx)
	})
	if err := mgr.Add(wait); err != nil {
		return fmt.Errorf("adding what starts when %s is served: %w", kind, err)
	}
	return nil
}

// Queue is the queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Enqueue returns a handler that queues what an object concerns that is new, has changed or is gone, to be looked at
// after a delay: until then, further events cost nothing. A change concerns what the object concerned before, too.
func Enqueue(delay time.Duration, concerned handler.MapFunc) handler.EventHandler {
	add := func(ctx context.Context, q Queue, objects ...client.Object) {
		for _, object := range objects {
			for _, request := range concerned(ctx, object) {
				q.AddAfter(request, delay)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q Queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q Queue) { add(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q Queue) { add(ctx, q, e.Object) },
	}
}

// Changed drops updates by which an object does not differ from what it was.
func Changed[T client.Object](differ func(was, is T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, before := e.ObjectOld.(T)
		is, after := e.ObjectNew.(T)
		return !before || !after || differ(was, is)
	}}
}

// Itself returns a request for an object.
func Itself(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}
}

// Concern returns what an object concerns; false for nothing.
type Concern[T client.Object] func(T) (types.NamespacedName, bool)

// Requests is a [handler.MapFunc] of what objects concern.
func (of Concern[T]) Requests(_ context.Context, object client.Object) []reconcile.Request {
	if key, ok := of.keyOf(object); ok {
		return []reconcile.Request{{NamespacedName: key}}
	}
	return nil
}

// Index is a [client.IndexerFunc] of the names of what objects concern.
func (of Concern[T]) Index(object client.Object) []string {
	if key, ok := of.keyOf(object); ok {
		return []string{key.Name}
	}
	return nil
}

func (of Concern[T]) keyOf(object client.Object) (key types.NamespacedName, ok bool) {
	if typed, is := object.(T); is {
		return of(typed)
	}
	return key, false
}
