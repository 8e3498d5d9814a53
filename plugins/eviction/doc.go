// Package eviction is what it takes to evict pods without breaking gangs: which pods may be evicted
// on some nodes ([Candidates]), which PodDisruptionBudgets guard them ([Budgets]), how a pod
// is ended ([Evictor]), and which evictions have not completed yet ([Underway]).
//
// A pod is evicted by its UID, and so is the one that was meant. Its status says so before it
// is deleted, in the name of the evicting profile, so that the process that runs after this
// one can finish or take back what was begun.
//
// It does not choose: package victim does. It knows no profile's gangs: its callers provide
// what runs of them ([Gangs]).
package eviction
