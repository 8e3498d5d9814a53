// Package whatif is a transaction over a scheduling snapshot: what if these pods
// stood on those nodes?
//
// A Transaction adds pods and reports, through the filters of the profile, what fits
// then; a mark can be rolled back to, and nothing of it outlives Discard.
// Placements that the filters judge by the node alone go into copies of the
// NodeInfos that they touch. Where pods care about each other (inter-pod
// affinity, topology spread), plugins read the whole snapshot while they prepare,
// so there the transaction uses the snapshot's own AssumePod and ForgetPod, in
// strict last-in-first-out order and only on the scheduling goroutine.
//
// It decides nothing, and it never talks to the API server.
package whatif
