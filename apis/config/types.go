package config

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GangArgs are the arguments of the Gang plugin. See package v1 for defaults.
type GangArgs struct {
	metav1.TypeMeta

	// DefaultWaitTime is the wait time of gangs that set none: the longest time
	// that members may be held while the minimum is not reached. More than 0.
	DefaultWaitTime metav1.Duration
	// InitialBackoff is the least time between a failed attempt to place a gang
	// and the next; it doubles with every failure. More than 0.
	InitialBackoff metav1.Duration
	// MaxBackoff bounds the backoff. Not below InitialBackoff.
	MaxBackoff metav1.Duration
	// ExplanationQPS bounds the writes per second that tell pending members and
	// PodGroups why they wait. 1 to 1000.
	ExplanationQPS int32
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// BoundedBinderArgs are the arguments of the BoundedBinder plugin. See package
// v1 for defaults.
type BoundedBinderArgs struct {
	metav1.TypeMeta

	// MaxInFlight is the number of Binding calls that may be under way at once,
	// over all profiles of the process. 1 to 10000.
	MaxInFlight int32
}
