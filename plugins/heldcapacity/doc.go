// Package heldcapacity is the HeldCapacity plugin: it keeps pods out of what the ledger of the
// process (package holds) holds for others.
//
// Any profile can have it. What a pod may use is what is held for the pod itself, or instead of
// that what a plugin before this one grants it in the cycle state: Gang, what its gang holds.
// Plugins that know what is held for pods whoever they are with are asked (holds.Granter).
//
// It holds nothing itself. Pods that it refused it has looked at again when that ends.
package heldcapacity
