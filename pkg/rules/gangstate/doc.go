// Package gangstate defines how a gang lives: who its members are, when it may be tried, and what happens to it next.
// What its pods and its PodGroup ask for is read by package gangspec.
//
// It is a state machine over values. The calls of Gangs are the inputs (a pod
// was seen, a plan was made, a member was reserved, time has passed), the
// Effects they return are the outputs. The invariant that everything else
// stands on: a member is released only when every gang of its group has its
// minimum held, released or bound.
//
// How far a gang has come has four names:
//
//	gathered       enough members are there; a round could reach the minimum
//	releasable     the minimum is held, released or bound
//	minimumRuns    the minimum is released or bound, or ran to success
//	hasStarted     it has started: members go by themselves from now on
//
// It reads no clock, takes no lock, knows no client and never logs. Its caller
// serialises the calls and acts on the effects.
package gangstate
