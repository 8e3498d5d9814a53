package startup

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
)

const (
	// firstPage is the number of objects in the first read; kinds with few objects fit
	// into it. laterPage is that of further reads.
	firstPage, laterPage = 500, 5000
	// settling is how long the cache of a kind with more pages gets to reach the first page's revision by watching, as
	// it does if objects change all the time.
	settling = 300 * time.Millisecond
	// look is how often a cache is checked.
	look = 10 * time.Millisecond
)

// kind is a kind of object that the scheduler or a plugin watches.
type kind struct {
	name     string // for the log of what is waited for
	resource schema.GroupVersionResource
	store    cache.Store
	objects  metadata.Getter
	// selector is the field selector of the watch.
	selector string
	// served reports whether the API server serves the kind; nil for Kubernetes' own, which an API server serves as long
	// as it runs, or not at all: nothing is stored of one that is not found.
	served func(context.Context) (bool, error)
	// mayEnd reports whether the kind may go unread after its reads have failed for so long; nil means
	// never.
	mayEnd func(failing time.Duration) bool
}

// kinds lists what the informers of a factory watch. A kind that a plugin watches there and
// Kubernetes does not know is left to the plugin.
func kinds(logger klog.Logger, factory informers.SharedInformerFactory, client metadata.Interface) []*kind {
	var all []*kind
	done := make(chan struct{})
	close(done) // only the list is needed, there is nothing to wait for
	for watched := range factory.WaitForCacheSync(done) {
		resource, informer, err := watchOf(watched, factory)
		if err != nil {
			logger.Info("Not waiting for the cache of a kind", "type", watched.String(), "why", err.Error())
			continue
		}
		k := &kind{name: resource.GroupResource().String(), resource: resource, store: informer.GetStore(),
			objects: client.Resource(resource)}
		if resource == v1.SchemeGroupVersion.WithResource("pods") {
			k.selector = reservepods.Selector
		}
		all = append(all, k)
	}
	return all
}

// ownKinds lists what plugins watch by informers of their own. Nothing is stored of kinds
// that the API server does not serve. A client that may not list a kind gets no error
// that shows this, so discovery is asked first.
func ownKinds(watches []Watch, api API) []*kind {
	var all []*kind
	for _, watch := range watches {
		if resource, selector, own := watch.Own(); own {
			all = append(all, &kind{
				name: watch.Name(), resource: resource, selector: selector, store: watch.Store(),
				objects: api.Metadata.Resource(resource),
				mayEnd:  func(failing time.Duration) bool { return failing > patience && !watch.Synced() },
				served:  func(ctx context.Context) (bool, error) { return crds.Served(ctx, api.Discovery, resource) },
			})
		}
	}
	return all
}

// watchOf finds the resource of a type, and its watch.
func watchOf(watched reflect.Type,
	factory informers.SharedInformerFactory) (schema.GroupVersionResource, cache.SharedIndexInformer, error) {
	object, ok := reflect.New(watched.Elem()).Interface().(runtime.Object)
	if !ok {
		return schema.GroupVersionResource{}, nil, fmt.Errorf("finding the kind of %s: it is no object", watched)
	}
	gvks, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		return schema.GroupVersionResource{}, nil, fmt.Errorf("finding the kind of %s: %w", watched, err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(gvks[0])
	informer, err := factory.ForResource(resource)
	if err != nil {
		return resource, nil, fmt.Errorf("finding the watch of %s: %w", resource, err)
	}
	return resource, informer.Informer(), nil
}

// catchUp returns when the cache has what is stored now. left is called with the number of changes that it lacks.
func (k *kind) catchUp(ctx context.Context, left func(int)) error {
	if k.served != nil {
		if ok, err := k.served(ctx); !ok || err != nil {
			return err
		}
	}
	page, err := k.page(ctx, firstPage, "")
	if k.served == nil && apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	at := page.ResourceVersion // all pages have the same revision
	stored := map[string]string{}
	note(stored, page)
	if page.Continue != "" {
		if err := until(ctx, settling, func() (bool, error) { return k.at(at) }); err == nil || !errors.Is(err, errBehind) {
			return err
		}
	}
	for page.Continue != "" {
		if page, err = k.page(ctx, laterPage, page.Continue); err != nil {
			return err
		}
		note(stored, page)
	}
	if past, err := k.at(at); past || err != nil {
		return err // no need to go through the cache
	}
	b, err := newBacklog(stored, at, k.cached())
	if err != nil {
		return err
	}
	return until(ctx, readAnew, func() (bool, error) {
		// Deletions since then are seen when the cache gets past the revision.
		if past, err := k.at(at); past || err != nil {
			return past, err
		}
		n, err := b.settle(k.revision, func(string) bool { return false })
		left(n)
		return n == 0, err
	})
}

// page reads objects with a consistent read: no older than what is stored.
func (k *kind) page(ctx context.Context, limit int64, next string) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	page, err := k.objects.List(ctx, metav1.ListOptions{Limit: limit, Continue: next, FieldSelector: k.selector})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", k.resource.Resource, err)
	}
	return page, nil
}

func note(stored map[string]string, page *metav1.PartialObjectMetadataList) {
	for i := range page.Items {
		stored[nameOf(&page.Items[i])] = page.Items[i].ResourceVersion
	}
}

// at reports whether the cache is known to have everything up to a revision.
func (k *kind) at(revision string) (bool, error) {
	has := k.store.LastStoreSyncResourceVersion()
	if has == "" {
		return false, nil // client-go does not keep it in this configuration
	}
	return hasReached(has, revision)
}

// cached lists the revisions of the objects in the cache that the API server has too.
func (k *kind) cached() map[string]string {
	return revisionsIn(k.store, nameOf, func(object metav1.Object) bool {
		pod, ok := object.(*v1.Pod)
		return !ok || !reservepods.IsReservePod(pod)
	})
}

// revision looks up an object in the cache.
func (k *kind) revision(key string) (string, bool) {
	object, ok, err := k.store.GetByKey(key)
	if err != nil || !ok {
		return "", false
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return "", false
	}
	return accessor.GetResourceVersion(), true
}

// errBehind: a cache did not catch up in time.
var errBehind = errors.New("the cache does not have all yet")

// until returns when a condition holds; with errBehind when it does not in time, or with
// the error of the condition.
func until(ctx context.Context, within time.Duration, condition func() (bool, error)) error {
	var failed error
	err := wait.PollUntilContextTimeout(ctx, look, within, true, func(context.Context) (ok bool, _ error) {
		ok, failed = condition()
		return ok, failed
	})
	switch {
	case err == nil || failed != nil:
		return failed
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return errBehind
	}
}
