// Package migration computes the next status of a PodMigration or a DefragmentationPlan, and what to do, from the
// objects it concerns and the time. It acts on nothing itself. Every action follows a status that already says so: a
// controller that continues after a crash does the same, and a pod is evicted at most once.
package migration
