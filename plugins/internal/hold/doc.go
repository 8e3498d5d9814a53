// Package hold is the ledger of capacity that is promised but that no pod on a
// node accounts for yet: the nodes of a plan, nominations, and reservations, of which pods
// take parts and give them back.
//
// A hold belongs to a holder; all other pods find the capacity taken. The sum over a node is always
// the sum of its holds, and a hold that of its parts: what pods have taken of it, and what is left.
//
// It does not know what a node has, nor whether a hold fits: it keeps promises,
// it does not make them. It takes no lock.
package hold
