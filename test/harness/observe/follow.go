package observe

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// retryAfter is the pause after a list failed, or a watch: the API server is down, or does not serve the resource yet.
const retryAfter = 100 * time.Millisecond

// PodGroups is the resource of the community's PodGroups.
var PodGroups = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

// Object is a pointer to an object of the API.
type Object interface {
	comparable
	metav1.Object
}

// Follower sees every change of the objects of one resource, in order, as long as it runs. When the watch is cut it
// lists again; what changed twice meanwhile is seen once.
type Follower[T Object] struct {
	// From lists and watches: Core or Dynamic.
	From cache.ListerWatcherWithContext
	// See is called with an object before (nil: it is new) and after a change (nil: it is gone; before is how it was
	// last).
	See func(before, after T)
	// SeeAll, if set, is called with all objects of a list, instead of See with what has changed.
	SeeAll func(all []T)
	// Listed, if set, is called after every list.
	Listed func()
}

// Core lists and watches a core resource in a namespace, or in all if that is empty, by a selector of fields.
func Core(client kubernetes.Interface, resource, namespace string, selector fields.Selector) cache.ListerWatcherWithContext {
	return cache.NewListWatchFromClient(client.CoreV1().RESTClient(), resource, namespace, selector)
}

// Dynamic lists and watches any resource, as *unstructured.Unstructured.
func Dynamic(client dynamic.ResourceInterface) cache.ListerWatcherWithContext {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, options)
		},
		WatchFuncWithContext: client.Watch,
	}
}

// Run follows until ctx is over.
func (f Follower[T]) Run(ctx context.Context) {
	known := map[types.UID]T{}
	for ctx.Err() == nil {
		version, err := f.list(ctx, known)
		if err == nil {
			err = f.watch(ctx, version, known)
		}
		if err != nil {
			_ = await.Pause(ctx, retryAfter)
		}
	}
}

// list reports what has changed since the objects were known, and returns the version of the list.
func (f Follower[T]) list(ctx context.Context, known map[types.UID]T) (version string, err error) {
	list, err := f.From.ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("listing: %w", err)
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return "", fmt.Errorf("listing: %w", err)
	}
	var all []T
	there := map[types.UID]bool{}
	err = meta.EachListItem(list, func(object runtime.Object) error {
		one, ok := object.(T)
		if !ok {
			return fmt.Errorf("listing: there is a %T", object)
		}
		all = append(all, one)
		there[one.GetUID()] = true
		return nil
	})
	if err != nil {
		return "", err
	}
	for uid, before := range known {
		if !there[uid] {
			f.tell(known, before, true, f.SeeAll == nil)
		}
	}
	for _, one := range all {
		f.tell(known, one, false, f.SeeAll == nil)
	}
	if f.SeeAll != nil {
		f.SeeAll(all)
	}
	if f.Listed != nil {
		f.Listed()
	}
	return accessor.GetResourceVersion(), nil
}

// watch reports what changes until the watch ends.
func (f Follower[T]) watch(ctx context.Context, version string, known map[types.UID]T) error {
	stream, err := f.From.WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		object, ok := event.Object.(T)
		switch {
		case event.Type == watch.Error || !ok:
			return fmt.Errorf("watching: %v", event.Object)
		case event.Type != watch.Bookmark:
			f.tell(known, object, event.Type == watch.Deleted, true)
		}
	}
	return nil
}

// tell takes in an object as it is now, or as it was last.
func (f Follower[T]) tell(known map[types.UID]T, object T, gone, see bool) {
	var none T
	before, after := known[object.GetUID()], object
	if gone {
		before, after = object, none
		delete(known, object.GetUID())
	} else {
		known[object.GetUID()] = object
	}
	if see && (before == none || after == none || before.GetResourceVersion() != after.GetResourceVersion()) {
		f.See(before, after)
	}
}
