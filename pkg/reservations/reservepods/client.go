package reservepods

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/utils/ptr"
)

// Client returns a client whose calls about reserve pods, which it knows by their names, the store
// answers; all other calls go to inner. Lists and watches are of the API server's pods alone.
func Client(inner kubernetes.Interface, store *Store) kubernetes.Interface {
	return &client{Interface: inner, store: store}
}

type client struct {
	kubernetes.Interface
	store *Store
}

// CoreV1 returns the client of the core group.
func (c *client) CoreV1() corev1.CoreV1Interface {
	return core{CoreV1Interface: c.Interface.CoreV1(), store: c.store}
}

// IsWatchListSemanticsUnSupported reports whether inner cannot stream lists. Its name is client-go's.
func (c *client) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(c.Interface)
}

type core struct {
	corev1.CoreV1Interface
	store *Store
}

// Pods returns the client of the pods of a namespace.
func (c core) Pods(namespace string) corev1.PodInterface {
	return pods{PodInterface: c.CoreV1Interface.Pods(namespace), store: c.store, namespace: namespace}
}

// pods is a client of pods. It overrides what schedulers call about one pod. The API server refuses all else about a
// reserve pod, as no pod can have its name.
type pods struct {
	corev1.PodInterface
	store     *Store
	namespace string
}

func (p pods) Get(ctx context.Context, name string, options metav1.GetOptions) (*v1.Pod, error) {
	if reserved(name) {
		return p.store.Get(p.namespace, name)
	}
	return p.PodInterface.Get(ctx, name, options)
}

func (p pods) Update(ctx context.Context, pod *v1.Pod, options metav1.UpdateOptions) (*v1.Pod, error) {
	if IsReservePod(pod) {
		return p.store.Update(p.namespace, pod)
	}
	return p.PodInterface.Update(ctx, pod, options)
}

func (p pods) UpdateStatus(ctx context.Context, pod *v1.Pod, options metav1.UpdateOptions) (*v1.Pod, error) {
	if IsReservePod(pod) {
		return p.store.UpdateStatus(p.namespace, pod)
	}
	return p.PodInterface.UpdateStatus(ctx, pod, options)
}

func (p pods) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions,
	subresources ...string) (*v1.Pod, error) {
	if reserved(name) {
		return p.store.Patch(p.namespace, name, kind, patch, subresources...)
	}
	return p.PodInterface.Patch(ctx, name, kind, patch, options, subresources...)
}

func (p pods) Delete(ctx context.Context, name string, options metav1.DeleteOptions) error {
	if reserved(name) {
		return p.store.Delete(p.namespace, name, options.Preconditions)
	}
	return p.PodInterface.Delete(ctx, name, options)
}

func (p pods) Bind(ctx context.Context, binding *v1.Binding, options metav1.CreateOptions) error {
	if reserved(binding.Name) {
		return p.store.Bind(p.namespace, binding)
	}
	return p.PodInterface.Bind(ctx, binding, options)
}

// EvictV1 deletes a reserve pod: no budget covers it.
func (p pods) EvictV1(ctx context.Context, eviction *policyv1.Eviction) error {
	if reserved(eviction.Name) {
		return p.Delete(ctx, eviction.Name, ptr.Deref(eviction.DeleteOptions, metav1.DeleteOptions{}))
	}
	return p.PodInterface.EvictV1(ctx, eviction)
}
