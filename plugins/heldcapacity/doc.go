// Package heldcapacity is the HeldCapacity plugin: it keeps pods out of what the ledger of the process (package ledger)
// holds for others.
//
// Any profile can have it. What a pod may use is what is held for the pod itself, or instead of
// that what a plugin before this one grants it in the cycle state: Gang, what its gang holds.
// Plugins that know what is held for pods independently of that are called, too (ledger.Granter).
//
// It holds nothing itself. It activates pods that it refused when a hold ends.
package heldcapacity
