// Package plans is the controller of DefragmentationPlans: it has what is to be freed promised to the goal, the targets
// of all moves reserved, and then the pods moved, so many at a time, by PodMigrations. What follows when, package
// migration among the pure ones says.
//
// As for PodMigrations, what a decision follows from is read from the API server itself, and a status is written
// before what it says is done.
package plans
