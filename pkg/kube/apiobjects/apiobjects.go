// Package apiobjects has what typed clients need: the kinds of objects that Lockstep reads and writes, and lists of
// them.
package apiobjects

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Scheme returns a scheme with the kinds of Kubernetes, the PodGroups of the community, and the kinds of Lockstep.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme)) // it fails only where two types have one name
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	coscheduling.AddToScheme(scheme)
	return scheme
}

// Pointers returns the addresses of the items of a list.
func Pointers[T any](items []T) []*T {
	pointers := make([]*T, len(items))
	for i := range items {
		pointers[i] = &items[i]
	}
	return pointers
}

// Into returns a function that adds what it is called with to a list of its type.
func Into[T runtime.Object](list *[]T) func(runtime.Object) {
	return func(object runtime.Object) { *list = append(*list, object.(T)) }
}
