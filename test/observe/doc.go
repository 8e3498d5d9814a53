// Package observe watches the cluster of a test.
//
// A Follower tells every change of the objects of one resource, in the order in which the API server stored them, and goes
// on when the API server was away. A Board is where what was seen is kept, by whoever it matters to, and waited for.
// The package keeps nothing of what it sees and judges nothing.
package observe
