// Package gangspec reads what users, and the operators of their jobs, write: which gang a pod is in, what its PodGroup
// and its keys ask for, where the pod comes from, and which number it has.
//
// Every function turns objects into values, and knows one gang at a time. How a gang lives is in package gangstate.
package gangspec
