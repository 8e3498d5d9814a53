// Package devicesimulation computes what Dynamic Resource Allocation would do if pods came to nodes or left them: a
// Simulator for a profile, and overlays over the current allocations.
//
// It allocates nothing itself. It has its own instance of kube-scheduler's DynamicResources plugin that sees devices
// through a manager of this package, as in the Cluster Autoscaler: what an overlay takes or frees is visible only
// there, and gone with the overlay. The profile's own instance of the plugin filters by the cycle state that this one
// prepares.
package devicesimulation
