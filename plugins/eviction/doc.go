// Package eviction is what it takes to evict pods without breaking gangs: who may be evicted
// on some nodes ([Candidates]), which PodDisruptionBudgets guard them ([Budgets]), how a pod
// is ended ([Evictor]), and which evictions have not come to their end yet ([Underway]).
//
// A pod that is evicted is the one that was meant, by its UID. Its status says so before it
// is deleted, in the name of the profile that does it, so that whoever comes after this
// process can finish or take back what was begun.
//
// It does not choose: package victim does. It knows no profile's gangs: somebody tells it
// what runs of them ([Gangs]).
package eviction
