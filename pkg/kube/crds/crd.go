// Package crds watches objects of kinds that the API server may not serve, or not yet.
package crds

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// lookEvery is how often discovery is asked for a kind that is not served.
const lookEvery = 5 * time.Second

// WhenServed runs an informer from when the API server serves its resource. The returned function reports
// whether all objects that existed at the start have been handled: none, where it is not served.
func WhenServed(ctx context.Context, client discovery.DiscoveryInterface, resource schema.GroupVersionResource,
	informer cache.SharedIndexInformer, handler cache.ResourceEventHandler) cache.InformerSynced {
	var running, absent atomic.Bool
	var registration cache.ResourceEventHandlerRegistration
	go func() {
		logger := klog.FromContext(ctx)
		err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
			ok, err := Served(ctx, client, resource)
			if err != nil {
				logger.Error(err, "Failed to ask whether a kind of object is served; asking again", "resource", resource)
				return false, nil
			}
			if !ok && absent.CompareAndSwap(false, true) {
				logger.Info("Resource not served; going on without it", "resource", resource)
			}
			return ok, nil
		})
		if err != nil {
			return // the process is shutting down
		}
		if registration, err = informer.AddEventHandler(handler); err != nil {
			logger.Error(err, "Failed to watch a kind of object", "resource", resource)
			absent.Store(true)
			return
		}
		running.Store(true)
		logger.Info("Watching a resource that is served", "resource", resource)
		informer.RunWithContext(ctx)
	}()
	return func() bool { return absent.Load() || running.Load() && registration.HasSynced() }
}

// Served reports whether the API server serves a resource.
func Served(ctx context.Context, client discovery.DiscoveryInterface,
	resource schema.GroupVersionResource) (bool, error) {
	list, err := discovery.ToServerResourcesInterfaceWithContext(client).ServerResourcesForGroupVersionWithContext(ctx,
		resource.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("discovering %s: %w", resource.GroupVersion(), err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Name == resource.Resource
	}), nil
}
