// Package descheduler has the arguments of Lockstep's plugins for the descheduler of Kubernetes SIGs, as
// they are written in pluginConfig of a DeschedulerPolicy.
//
// +k8s:deepcopy-gen=package
package descheduler
