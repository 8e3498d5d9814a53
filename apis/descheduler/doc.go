// Package descheduler has the arguments of Lockstep's plugins for the descheduler of Kubernetes SIGs, as a
// DeschedulerPolicy has them in pluginConfig.
//
// +k8s:deepcopy-gen=package
package descheduler
