package cacheevents

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// Frees reports whether an event is that a pod has left its node, or takes less of it.
func Frees(event fwk.ClusterEvent) bool {
	return event.Resource == fwk.AssignedPod && event.ActionType&(fwk.Delete|fwk.UpdatePodScaleDown) != 0 &&
		event.ActionType != fwk.Update
}

// Ends reports whether an event is that a pod on a node begins to end, and not to make room for a preemptor: whoever
// comes first may wait for its place.
func Ends(before, after any) bool {
	old, _ := before.(*v1.Pod)
	pod, _ := after.(*v1.Pod)
	if old == nil || pod == nil || old.DeletionTimestamp != nil || pod.DeletionTimestamp == nil {
		return false
	}
	return !objectstate.IsBeingEvicted(pod)
}

// Helps reports whether an event of something else than pods may let a pod fit that did not: of nodes, volumes,
// devices, or the claims to these.
func Helps(event fwk.ClusterEvent, before, after any) bool {
	switch event.Resource {
	case fwk.AssignedPod, fwk.Pod, fwk.UnscheduledPod, fwk.TargetPod, fwk.PodGroup:
		return false
	case fwk.Node:
		return nodeHelps(before, after)
	case fwk.ResourceClaim:
		return claimHelps(before, after)
	default: // volumes, kinds and lists of devices
		return true
	}
}

// FreesDevices reports whether an event is that there may be more devices, or that some are free again.
func FreesDevices(event fwk.ClusterEvent, before, after any) bool {
	switch event.Resource {
	case fwk.ResourceSlice, fwk.DeviceClass:
		return true
	case fwk.ResourceClaim:
		old, _ := before.(*resourceapi.ResourceClaim)
		claim, _ := after.(*resourceapi.ResourceClaim)
		return old != nil && old.Status.Allocation != nil && (claim == nil || claim.Status.Allocation == nil)
	default:
		return false
	}
}

// nodeHelps reports whether a change of a node may let a pod fit that did not. Of
// annotations only those count that plugins of this project read: others change all the time.
func nodeHelps(before, after any) bool {
	old, _ := before.(*v1.Node)
	node, _ := after.(*v1.Node)
	return old == nil || node == nil ||
		old.Spec.Unschedulable != node.Spec.Unschedulable ||
		!maps.Equal(old.Labels, node.Labels) ||
		!equality.Semantic.DeepEqual(old.Spec.Taints, node.Spec.Taints) ||
		!equality.Semantic.DeepEqual(old.Status.Allocatable, node.Status.Allocatable) ||
		!maps.Equal(ours(old.Annotations), ours(node.Annotations))
}

// claimHelps reports whether a change of a ResourceClaim may let a pod fit that did not: the claim was created, or its
// devices are free again, or it is allocated and other pods may share it, or has room for more users. The allocation of
// a claim that was made for one pod only takes devices from others. A claim that was made for extended resources helps
// when it goes, whether or not it had devices: kube-scheduler refuses its pod as long as it sees the claim.
func claimHelps(before, after any) bool {
	old, _ := before.(*resourceapi.ResourceClaim)
	claim, _ := after.(*resourceapi.ResourceClaim)
	if old == nil || claim == nil && old.Annotations[resourceapi.ExtendedResourceClaimAnnotation] == "true" {
		return true
	}
	has, had := claim != nil && claim.Status.Allocation != nil, old.Status.Allocation != nil
	return had && !has || has && !isOfPod(claim) && (!had || len(claim.Status.ReservedFor) < len(old.Status.ReservedFor))
}

// isOfPod reports whether a claim was made for one pod.
func isOfPod(claim *resourceapi.ResourceClaim) bool {
	owner := metav1.GetControllerOfNoCopy(claim)
	return owner != nil && owner.Kind == "Pod"
}

// ours returns the annotations under the domain of this project.
func ours(annotations map[string]string) map[string]string {
	found := map[string]string{}
	for key, value := range annotations {
		if strings.HasPrefix(key, v1alpha1.GroupName+"/") {
			found[key] = value
		}
	}
	return found
}
