// Package whatif is a transaction over a scheduling snapshot: what if these pods ran on those nodes?
//
// A Transaction adds and removes pods and reports, by the filters of the profile, what fits then. It can roll back to a
// mark, and nothing outlives Discard. Placements that filters judge by the node alone go into copies of the NodeInfos.
// Where pods refer to each other (inter-pod affinity, topology spread), plugins read the whole snapshot in PreFilter;
// there the transaction uses the snapshot's own AssumePod and ForgetPod, in strict last-in-first-out order and only on
// the scheduling goroutine.
//
// It decides nothing, and it never talks to the API server.
package whatif
