// Package v1alpha1 is the user-facing API of Lockstep: the keys of labels and
// annotations, and the reasons that its conditions and events carry.
//
// The names are fixed: users, controllers and tests rely on them.
//
// It holds no logic. What a value means, and what is used in place of a bad
// one, is decided where it is read (pkg/rules/gangstate).
//
// +k8s:deepcopy-gen=package
// +groupName=scheduling.lockstep.dev
package v1alpha1

// GroupName is the API group of Lockstep's own objects.
const GroupName = "scheduling.lockstep.dev"
