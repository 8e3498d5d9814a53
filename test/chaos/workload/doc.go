// Package workload makes up, from a seed, what a fault run does to a cluster: which gangs come and go,
// what happens to their members and PodGroups meanwhile, and which faults come in which order.
//
// A plan is a value, and the same seed makes the same plan. It decides; other packages carry it out.
package workload
