// Package share has the arithmetic of fair shares: what each of several queues deserves of a
// capacity that they share by weight, through a tree of queues, and which queue has got the least
// so far.
//
// Amounts are whole numbers, in the units of package resource, and every result is exact: nothing
// is lost to rounding, and the order of the input does not matter.
package share
