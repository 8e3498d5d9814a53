// Package resource has vectors of resource amounts: what a pod asks for, what is
// held, what is short. CPU is in thousandths, everything else in its base unit;
// one pod counts 1 of "pods".
//
// Sums are exact: what is added and taken away again leaves 0. They do not overflow, since amounts
// that no pod, node or cluster can have are refused where they are stated, see [Check], and are left
// out where they are read.
package resource
