package gangs

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/cacheevents"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// Heard notes what may help groups that did not fit, of all events that the scheduler's cache has
// taken in. Events that it has not taken in come here later.
func (r *Registry) Heard(event fwk.ClusterEvent, before, after any) {
	switch event.Resource {
	case fwk.AssignedPod:
		switch {
		case cacheevents.Frees(event):
			r.changed((*gang.Gangs).Changed)
		case event.ActionType&(fwk.Add|fwk.UpdatePodLabel) != 0 && event.ActionType != fwk.Update:
			r.changed((*gang.Gangs).PodsMoved)
		}
	case fwk.Node:
		if cacheevents.NodeHelps(before, after) {
			r.changed((*gang.Gangs).NodesChanged)
		}
	case fwk.ResourceClaim:
		if cacheevents.ClaimHelps(before, after) {
			r.changed((*gang.Gangs).NodesChanged)
		}
	case fwk.Pod, fwk.UnscheduledPod, fwk.TargetPod, fwk.PodGroup:
		// The registry watches members itself.
	default:
		r.changed((*gang.Gangs).NodesChanged) // volumes, kinds and lists of devices
	}
}
