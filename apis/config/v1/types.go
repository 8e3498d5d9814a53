package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// GangArgs are the arguments of the Gang plugin.
type GangArgs struct {
	metav1.TypeMeta `json:",inline"`

	// DefaultWaitTime is the wait time of gangs that set none: the longest time
	// that members may be held while the minimum is not reached. More than 0.
	// Default: 10m.
	DefaultWaitTime *metav1.Duration `json:"defaultWaitTime,omitempty"`
	// InitialBackoff is the least time between a failed attempt to place a gang
	// and the next; it doubles with every failure. More than 0. Default: 250ms.
	InitialBackoff *metav1.Duration `json:"initialBackoff,omitempty"`
	// MaxBackoff bounds the backoff. Not below InitialBackoff. Default: 1s.
	MaxBackoff *metav1.Duration `json:"maxBackoff,omitempty"`
	// ExplanationQPS bounds the writes per second that tell pending members and
	// PodGroups why they wait. 1 to 1000. Default: 10.
	ExplanationQPS *int32 `json:"explanationQPS,omitempty"`
}

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// BoundedBinderArgs are the arguments of the BoundedBinder plugin.
type BoundedBinderArgs struct {
	metav1.TypeMeta `json:",inline"`

	// MaxInFlight is the number of Binding calls that may be under way at once,
	// over all profiles of the process. 1 to 10000. Default: 48.
	MaxInFlight *int32 `json:"maxInFlight,omitempty"`
}
