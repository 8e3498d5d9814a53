package clusterdevices

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"
)

// compiledExpressions is how many class selectors are kept compiled.
const compiledExpressions = 100

// Selectors evaluates the selectors of DeviceClasses, and keeps them compiled.
type Selectors struct{ compiled *cel.Cache }

// NewSelectors returns selectors of which none is compiled.
func NewSelectors() *Selectors {
	return &Selectors{cel.NewCache(compiledExpressions, cel.Features{
		EnableConsumableCapacity: utilfeature.DefaultFeatureGate.Enabled(features.DRAConsumableCapacity),
		EnableListTypeAttributes: utilfeature.DefaultFeatureGate.Enabled(features.DRAListTypeAttributes),
	})}
}

// Match reports whether a class selects a device. A selector that cannot be evaluated selects nothing.
func (s *Selectors) Match(class *resourceapi.DeviceClass, driver string, device *resourceapi.Device) bool {
	for _, selector := range class.Spec.Selectors {
		if selector.CEL == nil {
			return false
		}
		expression := s.compiled.GetOrCompile(selector.CEL.Expression)
		if expression.Error != nil {
			return false
		}
		matches, _, err := expression.DeviceMatches(context.Background(), cel.Device{
			Driver: driver, AllowMultipleAllocations: device.AllowMultipleAllocations, Attributes: device.Attributes,
			Capacity: device.Capacity,
		})
		if err != nil || !matches {
			return false
		}
	}
	return true
}

// IsShared reports whether several nodes reach a device of a slice, or several claims can have it: how many are
// allocated is not bounded by what nodes have.
func IsShared(slice *resourceapi.ResourceSliceSpec, device *resourceapi.Device) bool {
	return slice.NodeName == nil || ptr.Deref(device.AllowMultipleAllocations, false)
}
