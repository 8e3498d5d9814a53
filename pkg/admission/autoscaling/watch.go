package autoscaling

import (
	"context"
	"fmt"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// byGang is the index of requests by their gang, from their annotation.
const byGang = "gang"

// informerOf returns the informer of the requests that schedulers of this project have made.
func informerOf(client dynamic.Interface) cache.SharedIndexInformer {
	index := cache.Indexers{byGang: func(object any) ([]string, error) {
		request, ok := object.(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("indexing ProvisioningRequests: got %T", object)
		}
		return []string{request.GetNamespace() + "/" + request.GetAnnotations()[v1alpha1.GangNameAnnotation]}, nil
	}}
	return dynamicinformer.NewFilteredDynamicInformer(client, Resource, metav1.NamespaceAll, 0, index,
		func(o *metav1.ListOptions) {
			o.LabelSelector = v1alpha1.ProvisioningRequestLabel
		}).Informer()
}

// watch starts the watch of the requests, once they are served. It is logged once that they are not, and once that the
// scheduler may not watch them.
func (r *Requester) watch(ctx context.Context) error {
	var told atomic.Bool
	err := r.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, reflector *cache.Reflector, err error) {
		if !apierrors.IsForbidden(err) {
			cache.DefaultWatchErrorHandler(ctx, reflector, err)
		} else if told.CompareAndSwap(false, true) {
			klog.FromContext(ctx).Error(err, "Not allowed to watch ProvisioningRequests, so none are created; apply "+Role)
		}
	})
	if err != nil {
		return fmt.Errorf("handling errors of the watch: %w", err)
	}
	seen := func(object any) {
		if request, ok := object.(*unstructured.Unstructured); ok {
			if key, ours := GangOf(request, r.SchedulerName); ours {
				r.queue.Add(key)
			}
		}
	}
	crds.WhenServed(ctx, r.Client.Discovery(), Resource, r.informer, cache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_,
			object any) {
			seen(object)
		}, DeleteFunc: watches.Deleted(func(gone *unstructured.Unstructured) { seen(gone) }),
	})
	return nil
}

// made returns the requests of a gang that the watch has seen.
func (r *Requester) made(key gangspec.Key) ([]*unstructured.Unstructured, error) {
	objects, err := r.informer.GetIndexer().ByIndex(byGang, key.Namespace+"/"+key.Name)
	if err != nil {
		return nil, fmt.Errorf("looking up the ProvisioningRequests of gang %s: %w", key, err)
	}
	var requests []*unstructured.Unstructured
	for _, object := range objects {
		if request, ok := object.(*unstructured.Unstructured); ok {
			if _, ours := GangOf(request, r.SchedulerName); ours {
				requests = append(requests, request)
			}
		}
	}
	return requests, nil
}
