// Package migration is what becomes of a PodMigration, as a function of what there is: the pod, the Reservation of
// its target, and the time. Nothing is done here. What is done follows from a status that says so already, so that
// whoever goes on after a crash does the same, and a pod is evicted once at most.
package migration
