// Package victim chooses which running pods to evict so that a preemptor fits.
//
// It judges gangs, not pods: what runs of a gang beyond its minimum is safe to take, as
// is everything of a gang that is broken already; the rest goes whole, in the domain and
// outside it, or not at all. Among what it may take it prefers what hurts least, by the
// rules of [Preempt] or [Reclaim]. It never leaves a healthy gang below its minimum,
// never chooses anything where the preemptor would not fit after all, and never a pod
// whose return would still let it fit. PodDisruptionBudgets count the chosen pods:
// victims that violate one go last among equals.
//
// It decides; callers evict. It knows no API server, no clock and no nodes: a [Trial]
// reports whether the preemptor fits. Values go in, values come out.
//
// The algorithm is that of Volcano's gang-aware preemption design (bundles, gain,
// cost, return on investment), with one difference: bundles are taken until the
// trial says that the preemptor fits, not until sums say so, and then trimmed.
package victim
