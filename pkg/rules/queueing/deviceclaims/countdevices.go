package deviceclaims

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"
)

// devicesOf counts the devices of a claim by class: those that were allocated, or before that what it asks for, which
// is a lower bound. Devices with admin access are not taken from anybody, and do not count.
func devicesOf(spec *resourceapi.ResourceClaimSpec, allocation *resourceapi.AllocationResult) map[string]int64 {
	if allocation == nil {
		return Asked(spec)
	}
	counts := map[string]int64{}
	for i := range allocation.Devices.Results {
		result := &allocation.Devices.Results[i]
		if class := classOf(spec, result.Request); class != "" && !ptr.Deref(result.AdminAccess, false) {
			counts[class]++
		}
	}
	return counts
}

// Asked counts the devices that a claim asks for, by class: of alternatives those of the first, and of all devices that
// match one. Devices with admin access are not taken from anybody, and do not count.
func Asked(spec *resourceapi.ResourceClaimSpec) map[string]int64 {
	counts := map[string]int64{}
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		switch exactly := request.Exactly; {
		case exactly != nil && !ptr.Deref(exactly.AdminAccess, false):
			counts[exactly.DeviceClassName] += atLeast(exactly.AllocationMode, exactly.Count)
		case exactly == nil && len(request.FirstAvailable) > 0:
			first := &request.FirstAvailable[0]
			counts[first.DeviceClassName] += atLeast(first.AllocationMode, first.Count)
		}
	}
	return counts
}

// Guaranteed counts the devices that a claim takes in any allocation, by class: neither alternatives nor all that match
// one, nor those with admin access.
func Guaranteed(spec *resourceapi.ResourceClaimSpec) map[string]int64 {
	counts := map[string]int64{}
	for i := range spec.Devices.Requests {
		if exactly := spec.Devices.Requests[i].Exactly; exactly != nil && !ptr.Deref(exactly.AdminAccess, false) &&
			exactly.AllocationMode != resourceapi.DeviceAllocationModeAll {
			counts[exactly.DeviceClassName] += atLeast(exactly.AllocationMode, exactly.Count)
		}
	}
	return counts
}

// HasAny reports whether a pod has devices by claims: its own, or one that was made for its extended resources.
func HasAny(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// NamesOf returns the names of the ResourceClaims of a pod, as far as they are known, each once: that for its extended
// resources, too.
func NamesOf(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.ResourceClaims {
		name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
		if err == nil && name != nil && !slices.Contains(names, *name) {
			names = append(names, *name)
		}
	}
	if extended := pod.Status.ExtendedResourceClaimStatus; extended != nil {
		names = append(names, extended.ResourceClaimName)
	}
	return names
}

// atLeast returns how many devices a request has at least once it is allocated. No claim has more than
// AllocationResultsMaxSize.
func atLeast(mode resourceapi.DeviceAllocationMode, count int64) int64 {
	if mode == resourceapi.DeviceAllocationModeAll {
		return 1
	}
	return min(max(count, 1), resourceapi.AllocationResultsMaxSize)
}

// classOf returns the class of a request, or of an alternative of it, by the name in an allocation; empty if there is
// no such request.
func classOf(spec *resourceapi.ResourceClaimSpec, name string) string {
	for i := range spec.Devices.Requests {
		request := &spec.Devices.Requests[i]
		if request.Name != resourceclaim.BaseRequestRef(name) {
			continue
		}
		if request.Exactly != nil {
			return request.Exactly.DeviceClassName
		}
		for j := range request.FirstAvailable {
			alternative := &request.FirstAvailable[j]
			if resourceclaim.CreateSubRequestRef(request.Name, alternative.Name) == name {
				return alternative.DeviceClassName
			}
		}
	}
	return ""
}
