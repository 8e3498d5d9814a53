package v1

import (
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

var (
	localSchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes, RegisterDefaults)
	// AddToScheme adds the versioned types, their defaults and conversions to a
	// scheme.
	AddToScheme = localSchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(configv1.SchemeGroupVersion,
		&GangArgs{},
		&BoundedBinderArgs{},
	)
	return nil
}
