package devicesimulation

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
)

// stock is the devices of nodes by class. It is not safe for concurrent use.
type stock struct {
	manager   fwk.SharedDRAManager
	selectors *clusterdevices.Selectors
	selected  map[match]selection
}

// match is a slice and the class that selects from it; both objects are replaced when they change.
type match struct {
	slice *resourceapi.ResourceSlice
	class *resourceapi.DeviceClass
}

// selection is the devices of a ResourceSlice that a class selects.
type selection struct {
	ids []structured.DeviceID
	// shared: some of them are.
	shared bool
}

func newStock(manager fwk.SharedDRAManager) *stock {
	return &stock{manager: manager, selectors: clusterdevices.NewSelectors(), selected: map[match]selection{}}
}

// nodeDevices are devices of a node.
type nodeDevices struct {
	node string
	ids  []structured.DeviceID
}

// devicesOf returns the devices of a class by slice. bounded is false if they do not bound what can be allocated: the
// class selects some that several nodes reach, or that can be allocated more than once.
func (s *stock) devicesOf(className string) (list []nodeDevices, bounded bool, err error) {
	class, err := s.manager.DeviceClasses().Get(className)
	if apierrors.IsNotFound(err) {
		return nil, false, nil // the filters report it
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading device class %s: %w", className, err)
	}
	all, err := s.slices()
	if err != nil {
		return nil, false, err
	}
	for _, slice := range all {
		selected := s.selectDevices(match{slice, class})
		if selected.shared {
			return nil, false, nil
		}
		if len(selected.ids) > 0 {
			list = append(list, nodeDevices{*slice.Spec.NodeName, selected.ids})
		}
	}
	return list, true, nil
}

// cachedPerSlice is the average number of classes cached for each ResourceSlice.
const cachedPerSlice = 8

// slices lists the ResourceSlices of the newest generation of each pool: also of those that are not complete yet, since
// what is counted of them bounds what can be allocated soon.
func (s *stock) slices() ([]*resourceapi.ResourceSlice, error) {
	all, err := s.manager.ResourceSlices().ListWithDeviceTaintRules()
	if err != nil {
		return nil, fmt.Errorf("listing ResourceSlices: %w", err)
	}
	if len(s.selected) > cachedPerSlice*len(all) {
		clear(s.selected)
	}
	return clusterdevices.Current(all), nil
}

func (s *stock) selectDevices(m match) selection {
	found, known := s.selected[m]
	if known {
		return found
	}
	spec := &m.slice.Spec
	for i := range spec.Devices {
		device := &spec.Devices[i]
		if s.selectors.Match(m.class, spec.Driver, device) {
			found.ids = append(found.ids, structured.MakeDeviceID(spec.Driver, spec.Pool.Name, device.Name))
			found.shared = found.shared || clusterdevices.IsShared(spec, device)
		}
	}
	s.selected[m] = found
	return found
}
