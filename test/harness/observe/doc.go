// Package observe watches the cluster of a test.
//
// A Follower delivers every change of the objects of one resource, in the order in which the API server stored them,
// and goes on when the API server was away. A Board is where the caller keeps what was seen, and waits for it. The
// package keeps nothing of what it sees and judges nothing.
package observe
