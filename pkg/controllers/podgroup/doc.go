// Package podgroup keeps the status of community PodGroups: phase, numbers of
// members, and the condition Scheduled where counting is enough to know it.
//
// What it writes follows from the pods and from the present status, never
// from the order of events, so a restart changes nothing. Where the scheduler has
// written why a gang waits, that stands until the facts contradict it.
//
// It decides nothing: no pod is scheduled, held back or deleted because of it.
package podgroup
