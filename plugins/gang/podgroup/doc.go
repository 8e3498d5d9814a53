// Package podgroup keeps the status of community PodGroups: phase, numbers of
// members, and the condition Scheduled where nothing but counting is needed to
// know it.
//
// What it writes follows from the pods and from what stands in the status, never
// from the order of events, so a restart changes nothing. Where the scheduler has
// said why a gang waits, that stands until the facts speak against it.
//
// It decides nothing: no pod is scheduled, held back or deleted because of it.
package podgroup
