// Package evictions evicts pods without breaking gangs: which pods may be evicted on some nodes ([Candidates]), which
// PodDisruptionBudgets cover them ([Budgets]), how a pod is ended ([Evictor]), and which evictions are not complete
// ([ActivePreemptions]).
//
// A pod is evicted by its UID, so no other of its name is hit. Its status says so before it is deleted, in the name of
// the evicting profile, so that the next process can finish or undo what was begun.
//
// It does not choose: package victim does. Pods that are moved are evicted by package podmigration, through the
// Eviction API. It knows no profile's gangs: its callers provide them ([Gangs]).
package evictions
