// Package reservation says what becomes of a Reservation: the status that it should have, given the pods
// that say they use it, the nodes it is held on, and the time.
//
// What has ended stays as it is. Owners never use more than is held, and it ends at the instant that its
// spec says, not before. The answer depends on what there is, not on the order in which it came, and to be
// asked again changes nothing.
//
// It finds no places, matches no owners and writes nothing.
package reservation
