// Package podgroup keeps the status of PodGroups as package gangstatus says: phase, numbers of members, and the
// condition Scheduled where counting is enough to know it.
//
// It decides nothing: no pod is scheduled, held back or deleted because of it.
package podgroup
