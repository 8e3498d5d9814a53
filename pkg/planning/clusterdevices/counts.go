package clusterdevices

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// Counts counts the devices of nodes as resources: the devices of their ResourceSlices that match a DeviceClass, as the
// resource that the class counts as. It is safe for concurrent use.
type Counts struct {
	mu        sync.Mutex
	selectors *Selectors
	// configured are the resources that classes count as, whatever they say.
	configured map[string]v1.ResourceName
	classes    map[string]*resourceapi.DeviceClass
	// renamed are the resources of classes that count under another name.
	renamed map[v1.ResourceName]v1.ResourceName
	slices  map[string]*resourceapi.ResourceSlice
	pools   map[poolID]map[string]*resourceapi.ResourceSlice
	// generations say which slices of each pool count.
	generations map[poolID]generation
	// byNode has the names of the slices of single nodes; shared those of the slices with shared devices.
	byNode map[string]map[string]bool
	shared map[string]bool
	// offers are what slices offer, cached until the slice or a class changes, and counted are the devices of nodes,
	// cached until they may have changed.
	offers  map[string]offer
	counted map[string]map[v1.ResourceName]int64
}

// offer is the devices of a slice, as resources.
type offer struct {
	counts map[v1.ResourceName]int64
	// partitions are the devices that take from counters of their pool. They are not in counts.
	partitions map[v1.ResourceName][]partition
	// unlimited are the resources among whose devices are shared ones.
	unlimited map[v1.ResourceName]bool
}

// NewCounts returns empty counts. Classes count as the resources that are configured for them; others as the extended
// resource that they name, else as the one that Kubernetes derives from their own name.
func NewCounts(configured map[string]v1.ResourceName) *Counts {
	return &Counts{
		selectors: NewSelectors(), configured: configured, classes: map[string]*resourceapi.DeviceClass{},
		renamed: map[v1.ResourceName]v1.ResourceName{}, slices: map[string]*resourceapi.ResourceSlice{},
		pools: map[poolID]map[string]*resourceapi.ResourceSlice{}, generations: map[poolID]generation{},
		byNode: map[string]map[string]bool{}, shared: map[string]bool{}, offers: map[string]offer{},
		counted: map[string]map[v1.ResourceName]int64{},
	}
}

// SetSlice adds or updates a ResourceSlice. It returns the nodes whose devices may have changed.
func (c *Counts) SetSlice(slice *resourceapi.ResourceSlice) (nodes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.slices[slice.Name]
	if before != nil && (isSame(before, slice) || equality.Semantic.DeepEqual(before.Spec, slice.Spec)) {
		return nil
	}
	nodes = c.remove(slice.Name)
	c.slices[slice.Name] = slice
	spec := &slice.Spec
	if slices.ContainsFunc(spec.Devices, func(d resourceapi.Device) bool { return IsShared(spec, &d) }) {
		c.shared[slice.Name] = true
	}
	if slice.Spec.NodeName != nil {
		node := *slice.Spec.NodeName
		nodes = append(nodes, node)
		nested.Set(c.byNode, node, slice.Name, true)
	}
	nested.Set(c.pools, poolOf(slice), slice.Name, slice)
	if before != nil {
		nodes = append(nodes, c.renew(before)...)
	}
	return c.recount(append(nodes, c.renew(slice)...))
}

// recount makes nodes be counted again. It returns each of them once.
func (c *Counts) recount(nodes []string) []string {
	for _, node := range nodes {
		delete(c.counted, node)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// renew finds out which slices count in the pool of one that came or went. It returns the nodes that have any if that
// has changed, or if the slice has counters.
func (c *Counts) renew(changed *resourceapi.ResourceSlice) (nodes []string) {
	pool := poolOf(changed)
	was, is := c.generations[pool], generationOf(maps.Values(c.pools[pool]))
	if len(c.pools[pool]) == 0 {
		delete(c.generations, pool)
		return nil
	}
	if c.generations[pool] = is; is == was && len(changed.Spec.SharedCounters) == 0 {
		return nil
	}
	for _, slice := range c.pools[pool] {
		if slice.Spec.NodeName != nil {
			nodes = append(nodes, *slice.Spec.NodeName)
		}
	}
	return nodes
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
	slice := c.slices[name]
	if slice == nil {
		return nil
	}
	return c.recount(append(c.remove(name), c.renew(slice)...))
}

// remove removes a slice. It returns the node that had it.
func (c *Counts) remove(name string) (nodes []string) {
	slice := c.slices[name]
	if slice == nil {
		return nil
	}
	delete(c.slices, name)
	delete(c.shared, name)
	delete(c.offers, name)
	if slice.Spec.NodeName != nil {
		node := *slice.Spec.NodeName
		nested.Delete(c.byNode, node, name)
		nodes = []string{node}
	}
	nested.Delete(c.pools, poolOf(slice), name)
	return nodes
}

// SetClass adds or updates a DeviceClass. It reports whether its devices count as anything else than before, and
// returns the nodes whose devices may have changed: all that have any.
func (c *Counts) SetClass(class *resourceapi.DeviceClass) (renamed bool, nodes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.classes[class.Name]
	if before != nil && before.UID == class.UID && equality.Semantic.DeepEqual(before.Spec, class.Spec) {
		return false, nil
	}
	return c.change(class.Name, class)
}

// DropClass removes a DeviceClass. It returns what SetClass does.
func (c *Counts) DropClass(name string) (renamed bool, nodes []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.classes[name] == nil {
		return false, nil
	}
	return c.change(name, nil)
}

// change replaces a class; nil for none.
func (c *Counts) change(name string, class *resourceapi.DeviceClass) (renamed bool, nodes []string) {
	as, names := c.resourceOf(name), c.renamed
	if c.classes[name] = class; class == nil {
		delete(c.classes, name)
	}
	c.renamed = c.renames()
	clear(c.offers)
	clear(c.counted)
	return c.resourceOf(name) != as || !maps.Equal(c.renamed, names), slices.Sorted(maps.Keys(c.byNode))
}

// ResourceOf returns the resource that the devices of a class count as, whether it exists or not.
func (c *Counts) ResourceOf(class string) v1.ResourceName {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resourceOf(class)
}

func (c *Counts) resourceOf(class string) v1.ResourceName {
	if name, ok := c.configured[class]; ok {
		return name
	}
	if known := c.classes[class]; known != nil && known.Spec.ExtendedResourceName != nil {
		return v1.ResourceName(*known.Spec.ExtendedResourceName)
	}
	return derived(class)
}

// derived returns the extended resource that Kubernetes derives from the name of a class.
func derived(class string) v1.ResourceName {
	return v1.ResourceName(resourceapi.ResourceDeviceClassPrefix + class)
}

// renames returns the extended resources of classes that count under another name. Of several classes that name a
// resource the newest backs it, and of those the first by name, as in kube-scheduler.
func (c *Counts) renames() map[v1.ResourceName]v1.ResourceName {
	names, backing := map[v1.ResourceName]v1.ResourceName{}, map[v1.ResourceName]*resourceapi.DeviceClass{}
	for _, class := range c.classes {
		backing[derived(class.Name)] = class
		if class.Spec.ExtendedResourceName == nil {
			continue
		}
		name := v1.ResourceName(*class.Spec.ExtendedResourceName)
		if other := backing[name]; other == nil ||
			cmp.Or(other.CreationTimestamp.Compare(class.CreationTimestamp.Time), cmp.Compare(class.Name, other.Name)) < 0 {
			backing[name] = class
		}
	}
	for name, class := range backing {
		if as := c.resourceOf(class.Name); as != name {
			names[name] = as
		}
	}
	return names
}

// Renamed returns an amount with the resources of classes under the name that their devices count as: the amount itself
// where that changes nothing.
func (c *Counts) Renamed(amount resource.Vector) resource.Vector {
	c.mu.Lock()
	defer c.mu.Unlock()
	var as resource.Vector
	for name := range amount {
		if now, ok := c.renamed[name]; ok {
			if as == nil {
				as = maps.Clone(amount)
			}
			delete(as, name)
			as[now] += amount[name]
		}
	}
	if as == nil {
		return amount
	}
	return as
}

// Unlimited returns the resources of which some devices are in reach of several nodes, or can be allocated to several
// claims: how many can be allocated is not bounded by what nodes have.
func (c *Counts) Unlimited() map[v1.ResourceName]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	unlimited := map[v1.ResourceName]bool{}
	for name := range c.shared {
		if slice := c.slices[name]; c.generations[poolOf(slice)].includes(slice) {
			maps.Copy(unlimited, c.offerOf(name).unlimited)
		}
	}
	return unlimited
}

// WithDevices returns a copy of a node with its devices added to its own resources, each under the name that it counts
// as. A resource in the node's status stays as it is: a device plugin serves it.
func (c *Counts) WithDevices(node *v1.Node) *v1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.renamed) == 0 && c.byNode[node.Name] == nil {
		return node
	}
	with, own := *node, node.Status.Allocatable
	if with.Status.Allocatable = maps.Clone(own); own == nil {
		with.Status.Allocatable = v1.ResourceList{}
	}
	for name, as := range c.renamed {
		if quantity, ok := own[name]; ok {
			delete(with.Status.Allocatable, name)
			if known := own[as]; known.IsZero() {
				with.Status.Allocatable[as] = quantity
			}
		}
	}
	for name, count := range c.count(node.Name) {
		if own := with.Status.Allocatable[name]; own.IsZero() {
			with.Status.Allocatable[name] = *apiresource.NewQuantity(count, apiresource.DecimalSI)
		}
	}
	return &with
}

// count counts the devices of a node that can be allocated: of those that take from counters, as many as can be had at
// once. The map must not be changed.
func (c *Counts) count(node string) map[v1.ResourceName]int64 {
	if known, ok := c.counted[node]; ok || c.byNode[node] == nil {
		return known
	}
	counts, partitions := map[v1.ResourceName]int64{}, map[poolID]map[v1.ResourceName][]partition{}
	for name := range c.byNode[node] {
		slice := c.slices[name]
		pool := poolOf(slice)
		if !c.generations[pool].includes(slice) {
			continue
		}
		offers := c.offerOf(name)
		for as, count := range offers.counts {
			counts[as] += count
		}
		for as, more := range offers.partitions {
			nested.Set(partitions, pool, as, append(partitions[pool][as], more...))
		}
	}
	for pool, byResource := range partitions {
		counters := c.countersOf(pool)
		for as, all := range byResource {
			counts[as] += atOnce(all, counters)
		}
	}
	c.counted[node] = counts
	return counts
}

// countersOf returns what the counters of a pool have: while its newest generation is not whole, the most that a slice
// says.
func (c *Counts) countersOf(pool poolID) map[counter]apiresource.Quantity {
	has := map[counter]apiresource.Quantity{}
	for _, slice := range c.pools[pool] {
		if !c.generations[pool].includes(slice) {
			continue
		}
		for _, set := range slice.Spec.SharedCounters {
			for name, there := range set.Counters {
				of := counter{set.Name, name}
				if known := has[of]; known.Cmp(there.Value) < 0 {
					has[of] = there.Value
				}
			}
		}
	}
	return has
}

// offerOf returns what a slice offers. A device that several classes select counts once as each resource.
func (c *Counts) offerOf(name string) offer {
	if known, ok := c.offers[name]; ok {
		return known
	}
	spec := &c.slices[name].Spec
	found := offer{counts: map[v1.ResourceName]int64{}, partitions: map[v1.ResourceName][]partition{},
		unlimited: map[v1.ResourceName]bool{}}
	for i := range spec.Devices {
		device, as := &spec.Devices[i], map[v1.ResourceName]bool{}
		for _, class := range c.classes {
			if name := c.resourceOf(class.Name); !as[name] && c.selectors.Match(class, spec.Driver, device) {
				as[name] = true
			}
		}
		for name := range as {
			if len(device.ConsumesCounters) > 0 {
				found.partitions[name] = append(found.partitions[name], partitionOf(device))
			} else {
				found.counts[name]++
			}
			if IsShared(spec, device) {
				found.unlimited[name] = true
			}
		}
	}
	c.offers[name] = found
	return found
}
