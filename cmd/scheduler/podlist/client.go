// Package podlist lists pods as they come: what is on the wire is decoded pod by pod, while the API server still encodes the rest.
// The whole of it is never held, nor are pods moved when there are more than there seemed to be.
//
// A list has what any other client would get, in the same order; a listener gets its pods before it is complete. The package does
// not watch, and keeps nothing.
package podlist

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// Listener gets the pods of one list, or of one page of it.
type Listener interface {
	// Listed is called with the next pod, which must not be changed.
	Listed(pod *v1.Pod)
	// Ended is called when there are no more: with the list, which is returned after that, or else with no list and an error.
	Ended(list *v1.PodList, err error)
}

// Nobody does not listen.
type Nobody struct{}

// Listed implements Listener.
func (Nobody) Listed(*v1.Pod) {}

// Ended implements Listener.
func (Nobody) Ended(*v1.PodList, error) {}

// Client returns a client that lists pods so, and calls the listener of each list; all other calls go to inner.
func Client(inner kubernetes.Interface, listen func(metav1.ListOptions) Listener) kubernetes.Interface {
	return client{inner, listen}
}

type client struct {
	kubernetes.Interface
	listen func(metav1.ListOptions) Listener
}

// CoreV1 returns the client of the core group.
func (c client) CoreV1() corev1.CoreV1Interface { return core{c.Interface.CoreV1(), c.listen} }

type core struct {
	corev1.CoreV1Interface
	listen func(metav1.ListOptions) Listener
}

// Pods returns the client of the pods of a namespace.
func (c core) Pods(namespace string) corev1.PodInterface {
	return pods{c.CoreV1Interface.Pods(namespace), c, namespace}
}

type pods struct {
	corev1.PodInterface
	core      core
	namespace string
}

// List lists pods.
func (p pods) List(ctx context.Context, options metav1.ListOptions) (*v1.PodList, error) {
	body, err := p.core.RESTClient().Get().NamespaceIfScoped(p.namespace, p.namespace != metav1.NamespaceAll).Resource("pods").
		VersionedParams(&options, scheme.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, err // as inner would
	}
	defer func() { _ = body.Close() }() // it has been read, or failed
	listener := p.core.listen(options)
	list, err := Decode(body, listener.Listed)
	listener.Ended(list, err)
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return list, nil
}
