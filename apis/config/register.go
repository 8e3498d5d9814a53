package config

import (
	"k8s.io/apimachinery/pkg/runtime"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// localSchemeBuilder is kube-scheduler's own, for the reason that package v1 gives.
var (
	localSchemeBuilder = &schedconfig.SchemeBuilder
	// AddToScheme adds the internal types to a scheme.
	AddToScheme = localSchemeBuilder.AddToScheme
)

func init() {
	localSchemeBuilder.Register(addKnownTypes)
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(schedconfig.SchemeGroupVersion,
		&GangArgs{},
		&GangPreemptionArgs{},
		&ReservationArgs{},
		&BoundedBinderArgs{},
		&FairShareArgs{},
	)
	return nil
}
