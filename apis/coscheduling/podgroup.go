// Package coscheduling has the community's PodGroup as our CRD defines it: with conditions, which the community's own
// Go type would lose.
package coscheduling

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// Kind is the kind of community PodGroups.
var Kind = schedulingv1alpha1.SchemeGroupVersion.WithKind("PodGroup")

// PodGroup is a PodGroup as our CRD has it: the community's, and conditions, which
// the community's own Go type would lose.
type PodGroup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   schedulingv1alpha1.PodGroupSpec `json:"spec"`
	Status PodGroupStatus                  `json:"status"`
}

// PodGroupStatus is the status of a PodGroup.
type PodGroupStatus struct {
	schedulingv1alpha1.PodGroupStatus `json:",inline"`

	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodGroupList is what the API server lists.
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []PodGroup `json:"items"`
}

// AddToScheme makes the clients of a scheme read PodGroups as this package defines them.
func AddToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypeWithName(Kind, &PodGroup{})
	scheme.AddKnownTypeWithName(Kind.GroupVersion().WithKind(Kind.Kind+"List"), &PodGroupList{})
	metav1.AddToGroupVersion(scheme, Kind.GroupVersion())
}

// DeepCopyObject implements runtime.Object.
func (pg *PodGroup) DeepCopyObject() runtime.Object { return pg.deepCopy() }

func (pg *PodGroup) deepCopy() *PodGroup {
	out := &PodGroup{TypeMeta: pg.TypeMeta}
	pg.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	pg.Spec.DeepCopyInto(&out.Spec)
	pg.Status.PodGroupStatus.DeepCopyInto(&out.Status.PodGroupStatus)
	out.Status.Conditions = slices.Clone(pg.Status.Conditions)
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *PodGroupList) DeepCopyObject() runtime.Object {
	out := &PodGroupList{TypeMeta: l.TypeMeta, Items: make([]PodGroup, len(l.Items))}
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items[i] = *l.Items[i].deepCopy()
	}
	return out
}
