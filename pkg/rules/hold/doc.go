// Package hold is the ledger of capacity that is promised but not yet used by a pod on a node: the nodes of a plan,
// nominations, and reservations, of which pods take and return parts.
//
// A hold belongs to a holder; to all other pods the capacity is taken. The sum of a node always equals the sum of its
// holds, and a hold the sum of its parts and what is left.
//
// It does not know a node's capacity, nor whether a hold fits. It takes no lock.
package hold
