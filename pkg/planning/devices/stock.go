package devices

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// Stock counts the devices of nodes, all or free ones. It bounds how many pods find devices there without allocating
// them one by one. It is not safe for concurrent use.
type Stock struct {
	manager  fwk.SharedDRAManager
	compiled *cel.Cache
	selected map[match]selection
}

// match is a slice and the class that selects from it; both objects are replaced when they change.
type match struct {
	slice *resourceapi.ResourceSlice
	class *resourceapi.DeviceClass
}

// selection is the devices of a ResourceSlice that a class selects.
type selection struct {
	ids []structured.DeviceID
	// shared: several nodes reach them, or several claims can have one of them.
	shared bool
}

// NewStock returns the stock of a manager's devices.
func NewStock(manager fwk.SharedDRAManager) *Stock {
	return &Stock{manager: manager, compiled: newCache(), selected: map[match]selection{}}
}

// Left bounds, by node, how many more devices of a class can be allocated there. bounded is false if the class selects
// devices that several nodes reach, or that can be allocated more than once.
func (s *Stock) Left(className string) (left map[string]int, bounded bool, err error) {
	allocated, err := s.manager.ResourceClaims().ListAllAllocatedDevices()
	if err != nil {
		return nil, false, nil // it is being changed: the filters decide
	}
	return s.countWithout(allocated, className)
}

// All returns what Left would if nothing were allocated.
func (s *Stock) All(className string) (all map[string]int, bounded bool, err error) {
	return s.countWithout(nil, className)
}

func (s *Stock) countWithout(allocated sets.Set[structured.DeviceID],
	className string) (counts map[string]int, bounded bool, err error) {
	counts = map[string]int{}
	bounded, err = s.forEach(className, func(id structured.DeviceID, node string) {
		if !allocated.Has(id) {
			counts[node]++
		}
	})
	if err != nil || !bounded {
		return nil, false, err
	}
	return counts, true, nil
}

// forEach calls count with the devices of a class and their nodes. It returns false if they do not bound what can be
// allocated.
func (s *Stock) forEach(className string, count func(id structured.DeviceID, node string)) (bounded bool, err error) {
	class, err := s.manager.DeviceClasses().Get(className)
	if apierrors.IsNotFound(err) {
		return false, nil // the filters report it
	}
	if err != nil {
		return false, fmt.Errorf("reading device class %s: %w", className, err)
	}
	all, err := s.slices()
	if err != nil {
		return false, err
	}
	for _, slice := range all {
		selected := s.selectDevices(match{slice, class})
		if selected.shared {
			return false, nil
		}
		for _, id := range selected.ids {
			count(id, *slice.Spec.NodeName)
		}
	}
	return true, nil
}

// cachedPerSlice is the average number of classes cached for each ResourceSlice.
const cachedPerSlice = 8

// slices lists the ResourceSlices.
func (s *Stock) slices() ([]*resourceapi.ResourceSlice, error) {
	all, err := s.manager.ResourceSlices().ListWithDeviceTaintRules()
	if err != nil {
		return nil, fmt.Errorf("listing ResourceSlices: %w", err)
	}
	if len(s.selected) > cachedPerSlice*len(all) {
		clear(s.selected)
	}
	return all, nil
}

func (s *Stock) selectDevices(m match) selection {
	found, known := s.selected[m]
	if known {
		return found
	}
	spec := &m.slice.Spec
	for i := range spec.Devices {
		device := &spec.Devices[i]
		if matches(s.compiled, m.class, spec.Driver, device) {
			found.ids = append(found.ids, structured.MakeDeviceID(spec.Driver, spec.Pool.Name, device.Name))
			found.shared = found.shared || spec.NodeName == nil || ptr.Deref(device.AllowMultipleAllocations, false)
		}
	}
	s.selected[m] = found
	return found
}
