package scenario

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// retryWatch is the pause after a watch or a list failed: the API server is down, or does not serve
// the resource yet.
const retryWatch = 100 * time.Millisecond

var (
	podsResource   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodesResource  = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	eventsResource = schema.GroupVersionResource{Version: "v1", Resource: "events"}

	podGroupsResource       = schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}
	nativePodGroupsResource = schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups"}
)

// follower sees every change of the objects of one resource, in order, until its context is over.
// When the watch is cut it lists again; what changed twice meanwhile is seen once.
type follower struct {
	client   dynamic.Interface
	resource schema.GroupVersionResource
	// see is told the object before (nil: new) and after (nil: gone).
	see func(before, after *unstructured.Unstructured)
	// listed is called after every list.
	listed func()

	known map[types.UID]*unstructured.Unstructured
}

func (f *follower) run(ctx context.Context) {
	f.known = map[types.UID]*unstructured.Unstructured{}
	for ctx.Err() == nil {
		if err := f.once(ctx); err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(retryWatch):
			}
		}
	}
}

// once lists and watches until the watch ends.
func (f *follower) once(ctx context.Context) error {
	list, err := f.client.Resource(f.resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing %s: %w", f.resource.Resource, err)
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		there[list.Items[i].GetUID()] = true
	}
	for uid, before := range f.known {
		if !there[uid] {
			f.tell(before, nil)
		}
	}
	for i := range list.Items {
		f.tell(f.known[list.Items[i].GetUID()], &list.Items[i])
	}
	f.listed()
	stream, err := f.client.Resource(f.resource).Watch(ctx, metav1.ListOptions{
		ResourceVersion: list.GetResourceVersion(), AllowWatchBookmarks: true,
	})
	if err != nil {
		return fmt.Errorf("watching %s: %w", f.resource.Resource, err)
	}
	defer stream.Stop()
	for event := range stream.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		switch {
		case event.Type == watch.Error:
			return fmt.Errorf("watching %s: %v", f.resource.Resource, event.Object)
		case !ok || event.Type == watch.Bookmark:
		case event.Type == watch.Deleted:
			f.tell(object, nil)
		default:
			f.tell(f.known[object.GetUID()], object)
		}
	}
	return nil
}

func (f *follower) tell(before, after *unstructured.Unstructured) {
	if after == nil {
		delete(f.known, before.GetUID())
		f.see(before, nil)
		return
	}
	f.known[after.GetUID()] = after
	if before == nil || before.GetResourceVersion() != after.GetResourceVersion() {
		f.see(before, after)
	}
}
