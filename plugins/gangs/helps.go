package gangs

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// Heard notes what may help groups that did not fit, of all that the scheduler's cache has
// taken in. What it has not is told here later.
func (r *Registry) Heard(event fwk.ClusterEvent, before, after any) {
	switch event.Resource {
	case fwk.AssignedPod:
		switch {
		case event.ActionType&(fwk.Delete|fwk.UpdatePodScaleDown) != 0 && event.ActionType != fwk.Update:
			r.changed((*gang.Gangs).Changed)
		case event.ActionType&(fwk.Add|fwk.UpdatePodLabel) != 0 && event.ActionType != fwk.Update:
			r.changed((*gang.Gangs).PodsMoved)
		}
	case fwk.Node:
		if Helps(before, after) {
			r.changed((*gang.Gangs).NodesChanged)
		}
	case fwk.Pod, fwk.UnscheduledPod, fwk.TargetPod, fwk.PodGroup:
		// Of members the registry hears itself.
	default:
		r.changed((*gang.Gangs).NodesChanged) // volumes, devices
	}
}

// Helps reports whether a change of a node may let a pod fit that did not. Of annotations
// only those count that plugins of this project read: others change all the time.
func Helps(before, after any) bool {
	old, _ := before.(*v1.Node)
	node, _ := after.(*v1.Node)
	if old == nil || node == nil {
		return true
	}
	return old.Spec.Unschedulable != node.Spec.Unschedulable ||
		!maps.Equal(old.Labels, node.Labels) ||
		!equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) ||
		!equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) ||
		!maps.Equal(ours(old.Annotations), ours(node.Annotations))
}

// ours are the annotations under the domain of this project.
func ours(annotations map[string]string) map[string]string {
	found := map[string]string{}
	for key, value := range annotations {
		if strings.HasPrefix(key, v1alpha1.GroupName+"/") {
			found[key] = value
		}
	}
	return found
}
