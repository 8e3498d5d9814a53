package reservepods

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Selector is the field selector of the scheduler's pods: it has no use for pods that have ended.
var Selector = fmt.Sprintf("status.phase!=%v,status.phase!=%v", v1.PodSucceeded, v1.PodFailed)

// NewInformer makes the pod informer of a scheduler: that of scheduler.NewInformerFactory, and the
// pods of the store. An informer factory takes the first one that it is given for pods:
//
//	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithInformerName(name))
//	factory.InformerFor(&v1.Pod{}, func(client kubernetes.Interface, _ time.Duration) cache.SharedIndexInformer {
//		return reservepods.NewInformer(store, client, name)
//	})
//
// The name may be nil.
func NewInformer(store *Store, client kubernetes.Interface, name *cache.InformerName) cache.SharedIndexInformer {
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	inner := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = Selector
			return pods.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = Selector
			return pods.Watch(ctx, options)
		},
	}, client)
	informer := cache.NewSharedIndexInformerWithOptions(NewListWatch(inner, store), &v1.Pod{},
		cache.SharedIndexInformerOptions{
			// Without the index a lister of a namespace looks at all pods.
			Indexers:   cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
			Identifier: name.WithResource(v1.SchemeGroupVersion.WithResource("pods")),
		})
	_ = informer.SetTransform(trim) // it fails only where the informer runs already
	return namesakes{informer}
}

// trim drops what nothing in the scheduler reads, and takes memory. Pods of the store have none.
func trim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
