// Package v1 is the versioned form of the arguments of Lockstep's plugins, as
// users write them under pluginConfig in a KubeSchedulerConfiguration of
// kubescheduler.config.k8s.io/v1. Fields that are left out take the default
// that their comment names.
//
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=github.com/lockstep-sh/lockstep/apis/config
// +k8s:defaulter-gen=TypeMeta
// +groupName=kubescheduler.config.k8s.io
package v1
