package devices

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/kubernetes/pkg/features"
)

// Counts counts the devices of nodes behind extended resources: the devices of their ResourceSlices that match a
// DeviceClass which names such a resource, or whose name the resource is derived from. Devices that several nodes reach
// count for no node. It is safe for concurrent use.
type Counts struct {
	mu       sync.Mutex
	compiled *cel.Cache
	classes  map[string]*resourceapi.DeviceClass
	// slices are the slices of single nodes, by name; byNode has their names.
	slices map[string]*resourceapi.ResourceSlice
	byNode map[string]map[string]bool
	// known are the counts of nodes, cached until something changes.
	known map[string]map[v1.ResourceName]int64
}

// compiledExpressions is how many class selectors are kept compiled.
const compiledExpressions = 100

// NewCounts returns empty counts.
func NewCounts() *Counts {
	return &Counts{
		compiled: newCache(),
		classes:  map[string]*resourceapi.DeviceClass{}, slices: map[string]*resourceapi.ResourceSlice{},
		byNode: map[string]map[string]bool{}, known: map[string]map[v1.ResourceName]int64{},
	}
}

func newCache() *cel.Cache {
	return cel.NewCache(compiledExpressions, cel.Features{
		EnableConsumableCapacity: utilfeature.DefaultFeatureGate.Enabled(features.DRAConsumableCapacity),
		EnableListTypeAttributes: utilfeature.DefaultFeatureGate.Enabled(features.DRAListTypeAttributes),
	})
}

// SetSlice adds or updates a ResourceSlice. It returns the nodes whose devices may have changed.
func (c *Counts) SetSlice(slice *resourceapi.ResourceSlice) (nodes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.slices[slice.Name]
	if before != nil && (isSame(before, slice) || equality.Semantic.DeepEqual(before.Spec, slice.Spec)) {
		return nil
	}
	nodes = c.dropSlice(slice.Name)
	if slice.Spec.NodeName == nil {
		return nodes
	}
	node := *slice.Spec.NodeName
	c.slices[slice.Name] = slice
	if c.byNode[node] == nil {
		c.byNode[node] = map[string]bool{}
	}
	c.byNode[node][slice.Name] = true
	delete(c.known, node)
	return slices.Compact(append(nodes, node))
}

// isSame reports whether two objects of one name are the same version.
func isSame(a, b metav1.Object) bool {
	return a.GetResourceVersion() != "" && a.GetResourceVersion() == b.GetResourceVersion() && a.GetUID() == b.GetUID()
}

// Replace sets all ResourceSlices and DeviceClasses.
func (c *Counts) Replace(all []*resourceapi.ResourceSlice, classes []*resourceapi.DeviceClass) {
	there := map[string]bool{}
	for _, slice := range all {
		there[slice.Name] = true
		c.SetSlice(slice)
	}
	for _, name := range c.names(func() iter.Seq[string] { return maps.Keys(c.slices) }) {
		if !there[name] {
			c.DropSlice(name)
		}
	}
	clear(there)
	for _, class := range classes {
		there[class.Name] = true
		c.SetClass(class)
	}
	for _, name := range c.names(func() iter.Seq[string] { return maps.Keys(c.classes) }) {
		if !there[name] {
			c.DropClass(name)
		}
	}
}

func (c *Counts) names(of func() iter.Seq[string]) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(of())
}

// DropSlice removes a ResourceSlice. It returns the nodes whose devices have changed.
func (c *Counts) DropSlice(name string) (nodes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropSlice(name)
}

func (c *Counts) dropSlice(name string) (nodes []string) {
	slice := c.slices[name]
	if slice == nil {
		return nil
	}
	node := *slice.Spec.NodeName
	delete(c.slices, name)
	if delete(c.byNode[node], name); len(c.byNode[node]) == 0 {
		delete(c.byNode, node)
	}
	delete(c.known, node)
	return []string{node}
}

// SetClass adds or updates a DeviceClass. It returns the nodes whose devices may have changed: all that have any.
func (c *Counts) SetClass(class *resourceapi.DeviceClass) (nodes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.classes[class.Name]
	if before != nil && before.UID == class.UID && equality.Semantic.DeepEqual(before.Spec, class.Spec) {
		return nil
	}
	c.classes[class.Name] = class
	return c.allChanged()
}

// DropClass removes a DeviceClass. It returns the nodes whose devices may have changed.
func (c *Counts) DropClass(name string) (nodes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.classes[name] == nil {
		return nil
	}
	delete(c.classes, name)
	return c.allChanged()
}

func (c *Counts) allChanged() []string {
	clear(c.known)
	return slices.Sorted(maps.Keys(c.byNode))
}

// WithDevices returns a copy of a node with its devices behind extended resources added to its own resources. A
// resource in the node's status stays as it is: a device plugin serves it. Nil counts have no devices.
func (c *Counts) WithDevices(node *v1.Node) *v1.Node {
	if c == nil {
		return node
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byNode[node.Name] == nil || len(c.classes) == 0 {
		return node
	}
	if c.known[node.Name] == nil {
		c.known[node.Name] = c.count(node.Name)
	}
	with := *node
	with.Status.Allocatable = maps.Clone(node.Status.Allocatable)
	if with.Status.Allocatable == nil {
		with.Status.Allocatable = v1.ResourceList{}
	}
	for name, count := range c.known[node.Name] {
		if own := node.Status.Allocatable[name]; own.IsZero() {
			with.Status.Allocatable[name] = *resource.NewQuantity(count, resource.DecimalSI)
		}
	}
	return &with
}

// count counts the devices of a node, in the newest generation of each pool.
func (c *Counts) count(node string) map[v1.ResourceName]int64 {
	type pool struct{ driver, name string }
	newest := map[pool]int64{}
	for name := range c.byNode[node] {
		spec := c.slices[name].Spec
		of := pool{spec.Driver, spec.Pool.Name}
		newest[of] = max(newest[of], spec.Pool.Generation)
	}
	counts := map[v1.ResourceName]int64{}
	for name := range c.byNode[node] {
		spec := c.slices[name].Spec
		if spec.Pool.Generation < newest[pool{spec.Driver, spec.Pool.Name}] {
			continue
		}
		for i := range spec.Devices {
			for resource, class := range c.backing() {
				if matches(c.compiled, class, spec.Driver, &spec.Devices[i]) {
					counts[resource]++
				}
			}
		}
	}
	return counts
}

// backing returns the class behind each resource: of several that name it the newest, and of those the first by name,
// as in kube-scheduler. Each class also backs the resource that is derived from its own name.
func (c *Counts) backing() map[v1.ResourceName]*resourceapi.DeviceClass {
	found := map[v1.ResourceName]*resourceapi.DeviceClass{}
	for _, class := range c.classes {
		found[v1.ResourceName(resourceapi.ResourceDeviceClassPrefix+class.Name)] = class
		if class.Spec.ExtendedResourceName == nil {
			continue
		}
		name := v1.ResourceName(*class.Spec.ExtendedResourceName)
		if other := found[name]; other == nil ||
			cmp.Or(other.CreationTimestamp.Compare(class.CreationTimestamp.Time), cmp.Compare(class.Name, other.Name)) < 0 {
			found[name] = class
		}
	}
	return found
}

// matches reports whether a class selects a device. A selector that cannot be evaluated selects nothing.
func matches(compiled *cel.Cache, class *resourceapi.DeviceClass, driver string, device *resourceapi.Device) bool {
	for _, selector := range class.Spec.Selectors {
		if selector.CEL == nil {
			return false
		}
		expression := compiled.GetOrCompile(selector.CEL.Expression)
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
