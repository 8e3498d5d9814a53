// Package victim chooses which running pods to evict so that a preemptor fits.
//
// It judges gangs, not pods: pods beyond a gang's minimum are safe to evict, as are all pods of a gang that is broken
// already; the rest goes whole, in the domain and outside it, or not at all. Among these it prefers what hurts least,
// by the rules of [Preempt] or [Reclaim]. It never leaves a healthy gang below its minimum, never chooses victims if
// the preemptor would not fit after all, and, unless it runs out of time, never a pod that could stay.
// PodDisruptionBudgets count the chosen pods: victims that violate one go last among equals.
//
// It decides; callers evict. It knows no API server, no clock and no nodes: a [Trial] reports whether the preemptor
// fits, and the caller when time is up.
//
// The algorithm is that of Volcano's gang-aware preemption design (bundles, gain, cost, return on investment), with
// these differences: bundles are taken until the trial says that the preemptor fits, not until sums say so, and then
// trimmed; up to three gangs or pods replace more if none of them counts more; and a [Budget] is charged only for
// victims that let the preemptor fit.
package victim
