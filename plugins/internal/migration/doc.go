// Package migration computes what becomes of a PodMigration from what there is: the pod, the Reservation of its
// target, and the time. It does nothing itself. What is done follows from a status that says so already, so that a
// controller that goes on after a crash does the same, and a pod is evicted once at most.
package migration
