// Package resource has vectors of resource amounts: what a pod asks for, what is
// held, what is short. CPU is in thousandths, everything else in its base unit;
// one pod counts 1 of "pods".
//
// Arithmetic saturates, so that no sum of user input overflows.
package resource
