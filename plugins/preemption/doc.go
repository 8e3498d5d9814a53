// Package preemption is the GangPreemption plugin: it makes room for whole gangs, and for
// single pods by the same path.
//
// It evicts nothing unless a what-if, in which all filters of the profile have their say,
// shows the whole minimum of the preemptor placed. It evicts what package victim chooses:
// what hurts least, and no pod more than is needed, except what is left of gangs that were
// broken already (argument evictBrokenGangs). The places are held for the preemptor in the
// ledger, against all others, until it takes them or gives up. While its victims end, a
// preemptor does not preempt again.
//
// It does not place the preemptor: the next plan does, once the victims are gone.
package preemption
