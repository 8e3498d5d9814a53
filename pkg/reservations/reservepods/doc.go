// Package reservepods makes reserve pods exist for everything in a scheduler process, and nowhere
// else. A reserve pod is scheduled like any pod, and keeps its place for a Reservation.
//
// Three things are put between the scheduler and the API server: NewInformer, whose pods are those of the API server
// and those of the Store; Client, whose calls about reserve pods are answered by the Store; and Recorder, whose events
// about them go to their Reservations. The code that schedules, gangs, queues and preempts sees no difference.
//
// No call that schedulers make about a reserve pod reaches the API server: its name cannot be that of a real pod. A
// handler of the informer sees each change of a reserve pod once, in order, whatever becomes of the watch; the change
// of a relist it may see again. The Store refuses a change that the API server would refuse, with the same error.
//
// It decides nothing: other packages decide which reserve pods there are and what becomes of
// them. It stores nothing: after a restart there are none, until they are added again.
package reservepods
