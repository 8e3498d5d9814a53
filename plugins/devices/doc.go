// Package devices finds out what Dynamic Resource Allocation would do if pods came to nodes or left them: a Simulator
// for a profile, and overlays over what is allocated.
//
// It allocates nothing itself. It has an instance of kube-scheduler's own DynamicResources plugin that sees devices
// through a manager of ours, as the Cluster Autoscaler does: what an overlay takes or frees is seen there only, and is
// gone with the overlay. The profile's own instance of the plugin filters by the cycle state that this one prepares.
package devices
