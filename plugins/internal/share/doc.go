// Package share has the arithmetic of fair shares: what each of some queues deserves of
// a capacity that they share by weight, through a tree of queues, and who is served
// least so far.
//
// Amounts are whole numbers, in the units of package resource, and every answer is
// exact: nothing is lost to rounding, and no order of the input matters.
package share
