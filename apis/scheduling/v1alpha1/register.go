package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SchemeGroupVersion is the group and version of the objects in this package.
var SchemeGroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// AddToScheme makes the objects of this package known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(SchemeGroupVersion, &Queue{}, &QueueList{}, &Reservation{}, &ReservationList{},
		&PodMigration{}, &PodMigrationList{}, &DefragmentationPlan{}, &DefragmentationPlanList{})
	metav1.AddToGroupVersion(scheme, SchemeGroupVersion)
	return nil
}
