package registry

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/cacheevents"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// Heard notes what may help groups that did not fit, of all events that the scheduler's cache has
// taken in. Events that it has not taken in come here later.
func (r *Registry) Heard(event fwk.ClusterEvent, before, after any) {
	switch event.Resource {
	case fwk.AssignedPod:
		switch {
		case event.ActionType == fwk.Delete && r.victimLeft(before):
			r.changed((*gangstate.Gangs).VictimEnded)
		case cacheevents.Frees(event):
			r.changed((*gangstate.Gangs).Changed)
		case event.ActionType&(fwk.Add|fwk.UpdatePodLabel) != 0 && event.ActionType != fwk.Update:
			r.changed((*gangstate.Gangs).PodsMoved)
		}
	case fwk.Node:
		if cacheevents.NodeHelps(before, after) {
			r.changed((*gangstate.Gangs).NodesChanged)
		}
	case fwk.ResourceClaim:
		if cacheevents.ClaimHelps(before, after) {
			r.changed((*gangstate.Gangs).NodesChanged)
		}
	case fwk.Pod, fwk.UnscheduledPod, fwk.TargetPod, fwk.PodGroup:
		// The registry watches members itself.
	default:
		r.changed((*gangstate.Gangs).NodesChanged) // volumes, kinds and lists of devices
	}
}

// victimLeft reports whether a pod that the scheduler's cache no longer has on a node was evicted to make room for
// others.
func (r *Registry) victimLeft(object any) bool {
	pod, ok := object.(*v1.Pod)
	return ok && r.left != nil && len(r.all()) > 0 && !r.goesOn(pod) && r.left(pod.UID, r.clock.Now())
}

// goesOn reports whether a pod exists and is not being deleted. Where the cache no longer has it, its binding failed or
// was called off: it has not ended, and may come to a node again.
func (r *Registry) goesOn(pod *v1.Pod) bool {
	now, err := r.pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && now.UID == pod.UID && now.DeletionTimestamp == nil
}
