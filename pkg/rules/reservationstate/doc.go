// Package reservationstate computes the status that a Reservation should have, given the pods that say they use it, the
// nodes it is held on, and the time.
//
// A Reservation that has ended does not change. Owners never use more than is held, and it ends exactly when its spec
// says. The result depends on the current state, not on its history, and is idempotent.
//
// It finds no places, matches no owners and writes nothing.
package reservationstate
