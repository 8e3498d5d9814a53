// Package hold is the ledger of capacity that is promised but that no pod on a
// node accounts for yet: the nodes of a plan, and later nominations,
// reservations and migrations.
//
// A hold belongs to a holder; everybody else finds the capacity taken. The sum
// over a node is always the sum of its holds.
//
// It does not know what a node has, nor whether a hold fits: it keeps promises,
// it does not make them. It takes no lock.
package hold
