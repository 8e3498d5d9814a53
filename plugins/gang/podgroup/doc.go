// Package podgroup keeps the status of community PodGroups: phase, numbers of
// members, and the condition Scheduled. Nobody else writes there.
//
// What it writes follows from the pods and from the phase that stands, never from the
// order of events, so a restart changes nothing. Why a gang waits the scheduler says in
// the status of its pods; that is taken over unless counting the pods speaks against it.
//
// It decides nothing: no pod is scheduled, held back or deleted because of it.
package podgroup
