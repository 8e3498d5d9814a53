package output

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// apiVersion is the one of what is printed as data. No API server serves it.
const apiVersion = "kubectl.lockstep.dev/v1alpha1"

// list is rows as an object that the printers of kubectl print.
type list[T any] struct {
	metav1.TypeMeta `json:",inline"`

	Items []T `json:"items"`
}

func newList[T any](kind string, items []T) *list[T] {
	if items == nil {
		items = []T{} // [] in JSON, not null
	}
	return &list[T]{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, Items: items}
}

// DeepCopyObject implements runtime.Object. Rows are not changed once they are made.
func (l *list[T]) DeepCopyObject() runtime.Object {
	return &list[T]{TypeMeta: l.TypeMeta, Items: slices.Clone(l.Items)}
}
