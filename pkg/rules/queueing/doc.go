// Package queueing keeps the book of queues: what each uses and deserves, and which of the jobs that
// wait in queues is first, so that every queue gets its share. Package turns asks for that job, and
// decides whose turn it is.
//
// A job is pods that start together, or one pod. It waits from when it is offered until it
// is admitted; what it asks for then counts as used by its queue, until its pods are
// counted themselves or its turn is over. After each admission everything is judged again:
// no order is kept that could be out of date.
//
// A Book is a state machine over values. Its calls are the inputs (a pod came to the gate, failed, is
// gone; time has passed), the Effects they return the outputs. A job is in exactly one phase, and one that
// waits is called when its turn comes:
//
//	outside, failed -> waiting   a pod comes to the gate
//	waiting         -> admitted  it is its turn, with room in the window; the pod is called
//	waiting         -> outside   the pod to call is gone; another is called, and offers it again
//	admitted        -> outside   all of it has nodes, is gone or lacks a member, or nothing came of it in 30 s
//	admitted        -> failed    it could not be scheduled; also from waiting, for a turn that had ended,
//	                             and from outside, for a pod with a promised node
//	failed          -> outside   its queue deserves more by now, so it is called; or its pod is gone
//
// It takes no lock, reads no clock and knows no client: amounts and time come in, decisions go out.
package queueing
