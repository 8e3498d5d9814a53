// Package preemption is the GangPreemption plugin: it frees capacity for whole gangs, and for single pods in the same
// way.
//
// It evicts nothing unless a simulation with all filters of the profile places the preemptor's whole minimum. It evicts
// what package victim chooses: what hurts least, and no pod more than needed, except the rest of broken gangs (argument
// evictBrokenGangs). The ledger holds the places for the preemptor, against all others, until it takes them or gives
// up. While its victims end, a preemptor does not preempt again.
//
// It does not place the preemptor: the next plan does, once the victims are gone.
package preemption
