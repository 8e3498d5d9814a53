// Package gangstatus has the rules for what the API shows of a gang: the status of its PodGroup, and the same of gangs
// that have none.
//
// What it says follows from the pods and from the present status, never from the order of events, so a restart changes
// nothing. Where the scheduler has written why a gang waits, that stands until the facts contradict it.
//
// It writes nothing: lockstep-controller writes the status of PodGroups, and readers compute it for what they show.
package gangstatus
