// Package heldcapacity is the HeldCapacity plugin: it keeps pods out of what the ledger of the
// process (package holds) holds for others.
//
// Any profile can have it. What a pod may use is what is held for the pod itself, or what a
// plugin before this one grants it in the cycle state: Gang, what its gang holds.
//
// It holds nothing itself. Pods that it refused it has looked at again when that ends.
package heldcapacity
