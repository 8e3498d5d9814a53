// Package defragmentation is a Balance plugin for the descheduler of Kubernetes SIGs. It plans which pods are to
// restart elsewhere so that free capacity lies together: for the gang that waits, the cheapest moves after which it
// fits, found by arithmetic (package defrag) and checked move by move with the plugins of its own profile (packages
// planner and whatif), in a scheduler that follows the cluster and never schedules.
//
// The plugin evicts no pod. It writes a DefragmentationPlan; lockstep-controller carries it out.
package defragmentation
