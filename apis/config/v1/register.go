package v1

import (
	"k8s.io/apimachinery/pkg/runtime"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// localSchemeBuilder is kube-scheduler's own, so that its loader knows and defaults
// these arguments even where a profile leaves them out.
var (
	localSchemeBuilder = &configv1.SchemeBuilder
	// AddToScheme adds the versioned types, their defaults and conversions to a
	// scheme.
	AddToScheme = localSchemeBuilder.AddToScheme
)

func init() {
	localSchemeBuilder.Register(addKnownTypes, RegisterDefaults)
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(configv1.SchemeGroupVersion,
		&GangArgs{},
		&GangPreemptionArgs{},
		&ReservationArgs{},
		&BoundedBinderArgs{},
		&FairShareArgs{},
	)
	return nil
}
