// Package reservepods makes reserve pods exist for everybody in a scheduler process, and for
// nobody else. A reserve pod is scheduled like any pod, and keeps its place for a Reservation.
//
// Three things are put between the scheduler and the API server: NewInformer, whose pods are
// those of the API server and those of the Store; Client, whose calls about reserve pods are
// answered by the Store; and Recorder, whose events about them go to what they are made for.
// What schedules, gangs, queues and preempts knows of no difference.
//
// No call about a reserve pod reaches the API server: its name cannot be that of a real pod. A
// handler of the informer sees each change of a reserve pod once, in order, whatever becomes of
// the watch; that of a relist it may see again. A change that the API server would refuse, the
// Store refuses with the same error.
//
// It decides nothing: others say which reserve pods there are and what becomes of them. It writes
// nothing down: after a restart there are none, until they are added again.
package reservepods
