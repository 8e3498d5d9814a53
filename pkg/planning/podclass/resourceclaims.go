package podclass

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
)

// deviceClaim returns the name of a pod's i-th ResourceClaim; empty until it exists.
func deviceClaim(pod *v1.Pod, i int) string {
	name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
	if err != nil || name == nil {
		return ""
	}
	return *name
}

// deviceKey returns the key of a ResourceClaim among volume claims, whose names contain no slash.
func deviceKey(pod *v1.Pod, name string) ClaimKey {
	return ClaimKey{pod.Namespace, devicePrefix + name}
}

const devicePrefix = "devices/"

// CompareClaims orders claims by namespace and name.
func CompareClaims(a, b ClaimKey) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// Device returns the namespace and name of the ResourceClaim of a key.
func (k ClaimKey) Device() types.NamespacedName {
	return types.NamespacedName{Namespace: k.namespace, Name: strings.TrimPrefix(k.name, devicePrefix)}
}

// ResourceClaims returns the keys of a pod's ResourceClaims that exist.
func ResourceClaims(pod *v1.Pod) (keys []ClaimKey) {
	for i := range pod.Spec.ResourceClaims {
		if name := deviceClaim(pod, i); name != "" && !slices.Contains(keys, deviceKey(pod, name)) {
			keys = append(keys, deviceKey(pod, name))
		}
	}
	return keys
}

// readDevices adds a pod's ResourceClaims to c. Claims that ask for the same, and that no other pod has, are alike. A
// claim that members share goes by its name: once one of them has it, the others must go where it is.
func (s Storage) readDevices(c *Claims, pod *v1.Pod, uses map[ClaimKey]int) error {
	for i := range pod.Spec.ResourceClaims {
		c.Any = true
		name := deviceClaim(pod, i)
		if name == "" || s.devices == nil {
			c.shape = append(c.shape, "devices to be claimed")
			continue
		}
		claim, err := s.devices.Get(pod.Namespace, name)
		if err != nil && !errors.Is(err, assumecache.ErrNotFound) {
			return fmt.Errorf("reading ResourceClaim %s/%s of pod %s: %w", pod.Namespace, name, pod.Name, err)
		}
		shared := uses[deviceKey(pod, name)] > 1
		switch {
		case err != nil, claim.DeletionTimestamp != nil, claim.Status.Allocation != nil,
			s.devices.GetPendingAllocation(claim.UID) != nil:
			c.shape = append(c.shape, "devices", name)
		case shared:
			c.Contends = true
			c.shape = append(c.shape, "devices", name)
		default:
			c.shape = append(c.shape, "devices", claim.Spec)
			if c.Devices == nil {
				c.Devices = map[string]int64{}
			}
			for class, n := range deviceclaims.Guaranteed(&claim.Spec) {
				c.Devices[class] += n
			}
		}
	}
	return nil
}

// ResourceClaim returns a ResourceClaim; false if it is not known, or the scheduler has no DRA manager.
func (s Storage) ResourceClaim(name types.NamespacedName) (*resourceapi.ResourceClaim, bool) {
	if s.devices == nil {
		return nil, false
	}
	claim, err := s.devices.Get(name.Namespace, name.Name)
	return claim, err == nil
}
