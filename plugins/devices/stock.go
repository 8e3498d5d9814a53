package devices

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// Stock counts the devices that are left on nodes. It bounds how many pods find devices there: without it, devices would have to be
// allocated one after the other to learn that there are too few. It is not safe for concurrent use.
type Stock struct {
	manager  fwk.SharedDRAManager
	compiled *cel.Cache
	// matching are the devices of a ResourceSlice that a class selects.
	matching map[match][]structured.DeviceID
}

// match is a slice and the class that selects from it; both objects are replaced when they change.
type match struct {
	slice *resourceapi.ResourceSlice
	class *resourceapi.DeviceClass
}

// NewStock returns the stock of a manager's devices.
func NewStock(manager fwk.SharedDRAManager) *Stock {
	return &Stock{manager: manager, compiled: newCache(), matching: map[match][]structured.DeviceID{}}
}

// Left returns, by node, at most how many more devices of a class can be allocated there. bounded is false where devices are
// reached from several nodes, or can be allocated more than once.
func (s *Stock) Left(className string) (left map[string]int, bounded bool, err error) {
	class, err := s.manager.DeviceClasses().Get(className)
	if apierrors.IsNotFound(err) {
		return nil, false, nil // the filters report it
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading device class %s: %w", className, err)
	}
	all, err := s.manager.ResourceSlices().ListWithDeviceTaintRules()
	if err != nil {
		return nil, false, fmt.Errorf("listing ResourceSlices: %w", err)
	}
	if slices.ContainsFunc(all, isShared) {
		return nil, false, nil
	}
	allocated, err := s.manager.ResourceClaims().ListAllAllocatedDevices()
	if err != nil {
		return nil, false, nil // it is changing right now: the filters decide
	}
	if len(s.matching) > rememberedPerSlice*len(all) {
		clear(s.matching)
	}
	left = map[string]int{}
	for _, slice := range all {
		for _, id := range s.match(match{slice, class}) {
			if !allocated.Has(id) {
				left[*slice.Spec.NodeName]++
			}
		}
	}
	return left, true, nil
}

// rememberedPerSlice is how many classes are remembered on average for each ResourceSlice.
const rememberedPerSlice = 8

func (s *Stock) match(m match) []structured.DeviceID {
	ids, known := s.matching[m]
	if known {
		return ids
	}
	spec := &m.slice.Spec
	for i := range spec.Devices {
		if matches(s.compiled, m.class, spec.Driver, &spec.Devices[i]) {
			ids = append(ids, structured.MakeDeviceID(spec.Driver, spec.Pool.Name, spec.Devices[i].Name))
		}
	}
	s.matching[m] = ids
	return ids
}

// isShared reports whether several nodes reach the devices of a slice, or several claims can have the same device.
func isShared(slice *resourceapi.ResourceSlice) bool {
	return slice.Spec.NodeName == nil || slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool {
		return ptr.Deref(d.AllowMultipleAllocations, false)
	})
}
