// Package config holds the internal types of the arguments that Lockstep's
// plugins take in a KubeSchedulerConfiguration.
//
// They live in the API group of that configuration, so that kube-scheduler's
// own loader decodes, defaults and converts them, strictly. The versioned form
// that users write is package v1; bounds are checked in package validation.
//
// +k8s:deepcopy-gen=package
// +groupName=kubescheduler.config.k8s.io
package config
