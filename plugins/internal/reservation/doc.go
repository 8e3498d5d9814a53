// Package reservation computes the status that a Reservation should have, given the pods that say they use
// it, the nodes it is held on, and the time.
//
// A Reservation that has ended stays as it is. Owners never use more than is held, and it ends at the
// instant that its spec says, not before. The result depends on the current state, not on the order in
// which that came about, and computing it again changes nothing.
//
// It finds no places, matches no owners and writes nothing.
package reservation
