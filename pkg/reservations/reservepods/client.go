package reservepods

import (
	"context"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/watchlist"
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

// pods is a client of pods. What it does not override is not about one pod, or reads what only a
// running pod has.
type pods struct {
	corev1.PodInterface
	store     *Store
	namespace string
}

func (p pods) Create(ctx context.Context, pod *v1.Pod, options metav1.CreateOptions) (*v1.Pod, error) {
	if IsReservePod(pod) {
		return nil, unsupported("create")
	}
	return p.PodInterface.Create(ctx, pod, options)
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

func (p pods) Patch(ctx context.Context, name string, kind types.PatchType, patch []byte, options metav1.PatchOptions, subresources ...string) (*v1.Pod, error) {
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

func (p pods) Evict(ctx context.Context, eviction *policyv1beta1.Eviction) error {
	if reserved(eviction.Name) {
		return p.evict(eviction.Name, eviction.DeleteOptions)
	}
	return p.PodInterface.Evict(ctx, eviction)
}

func (p pods) EvictV1(ctx context.Context, eviction *policyv1.Eviction) error {
	if reserved(eviction.Name) {
		return p.evict(eviction.Name, eviction.DeleteOptions)
	}
	return p.PodInterface.EvictV1(ctx, eviction)
}

func (p pods) EvictV1beta1(ctx context.Context, eviction *policyv1beta1.Eviction) error {
	if reserved(eviction.Name) {
		return p.evict(eviction.Name, eviction.DeleteOptions)
	}
	return p.PodInterface.EvictV1beta1(ctx, eviction)
}

// evict deletes a pod of the store: no budget covers it.
func (p pods) evict(name string, options *metav1.DeleteOptions) error {
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	return p.store.Delete(p.namespace, name, options.Preconditions)
}

func (p pods) Apply(ctx context.Context, pod *applyv1.PodApplyConfiguration, options metav1.ApplyOptions) (*v1.Pod, error) {
	if pod != nil && pod.Name != nil && reserved(*pod.Name) {
		return nil, unsupported("apply")
	}
	return p.PodInterface.Apply(ctx, pod, options)
}

func (p pods) ApplyStatus(ctx context.Context, pod *applyv1.PodApplyConfiguration, options metav1.ApplyOptions) (*v1.Pod, error) {
	if pod != nil && pod.Name != nil && reserved(*pod.Name) {
		return nil, unsupported("apply")
	}
	return p.PodInterface.ApplyStatus(ctx, pod, options)
}

func (p pods) UpdateEphemeralContainers(ctx context.Context, name string, pod *v1.Pod, options metav1.UpdateOptions) (*v1.Pod, error) {
	if reserved(name) {
		return nil, unsupported("update of ephemeral containers")
	}
	return p.PodInterface.UpdateEphemeralContainers(ctx, name, pod, options)
}

func (p pods) UpdateResize(ctx context.Context, name string, pod *v1.Pod, options metav1.UpdateOptions) (*v1.Pod, error) {
	if reserved(name) {
		return nil, unsupported("resize")
	}
	return p.PodInterface.UpdateResize(ctx, name, pod, options)
}

func unsupported(verb string) error { return apierrors.NewMethodNotSupported(resource, verb) }
