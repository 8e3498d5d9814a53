package devicesimulation

import (
	"errors"
	"fmt"
	"sync"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// count is the devices of a class by node: all, and those that are free. Counting is expensive if many are allocated,
// so changes by an overlay are counted separately.
type count struct {
	bounded bool
	on      []nodeDevices
	// free is nil while it is unknown which devices are allocated.
	all, free map[string]int
	// node is the node of each device.
	node func() map[structured.DeviceID]string
	// delta is how many more each node had free when the overlay had this version.
	delta   map[string]int
	version int
}

// Bounds bounds how many devices of a class could be allocated on nodes: all, if nothing were allocated, and free, as
// it was before the overlay changed anything, nil while that is unknown. bounded is false if the class selects devices
// that several nodes reach, or that can be allocated more than once. Partitions that exclude each other all count: the
// filters refuse what cannot be allocated at once. Queues share fewer; see package clusterdevices.
func (o *Overlay) Bounds(class string) (all, free map[string]int, bounded bool) {
	c, err := o.counted(class)
	if err != nil || !c.bounded { // the filters report errors
		return nil, nil, false
	}
	return c.all, c.free, true
}

// Left bounds how many more devices of a class could be allocated on a node; see Bounds.
func (o *Overlay) Left(class, node string) (left int, bounded bool, err error) {
	c, err := o.counted(class)
	if err != nil || c.free == nil {
		return 0, false, err
	}
	if c.delta == nil || c.version != o.version {
		c.delta, c.version = o.deltaOf(c), o.version
	}
	return c.free[node] + c.delta[node], c.bounded, nil
}

// Among counts the distinct devices of a class that would be allocated to claims. untold are the claims for which that
// is unknown: those that would not be allocated, and all if Left is not bounded. Claims that do not exist have none.
func (o *Overlay) Among(class string,
	claims ...types.NamespacedName) (count int, untold []*resourceapi.ResourceClaim, err error) {
	c, err := o.counted(class)
	if err != nil {
		return 0, nil, err
	}
	ids, would := sets.New[structured.DeviceID](), tracker{o.s.real.ResourceClaims(), o}
	for _, name := range claims {
		claim, err := would.Get(name.Namespace, name.Name)
		switch {
		case errors.Is(err, assumecache.ErrNotFound):
			continue
		case err != nil:
			return 0, nil, fmt.Errorf("reading claim %s: %w", name, err)
		case c.free == nil || !c.bounded || claim.Status.Allocation == nil:
			untold = append(untold, claim)
			continue
		}
		for result := range allocated(claim) {
			if id := idOf(result); c.node()[id] != "" {
				ids.Insert(id)
			}
		}
	}
	return len(ids), untold, nil
}

// counted returns the count of a class without the overlay's changes.
func (o *Overlay) counted(class string) (c *count, err error) {
	if c := o.counts[class]; c != nil {
		return c, nil
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.counts == nil {
		o.counts = map[string]*count{}
		if o.allocated, err = o.s.real.ResourceClaims().ListAllAllocatedDevices(); err != nil {
			o.allocated = nil // it is being changed: unknown, for as long as the overlay lives
		}
	}
	c = &count{all: map[string]int{}}
	if o.allocated != nil {
		c.free = map[string]int{}
	}
	if c.on, c.bounded, err = o.s.stock.devicesOf(class); err != nil {
		return nil, err
	}
	for _, on := range c.on {
		c.all[on.node] += len(on.ids)
		for _, id := range on.ids {
			if c.free != nil && !o.allocated.Has(id) {
				c.free[on.node]++
			}
		}
	}
	c.node = sync.OnceValue(func() map[structured.DeviceID]string {
		node := map[structured.DeviceID]string{}
		for _, on := range c.on {
			for _, id := range on.ids {
				node[id] = on.node
			}
		}
		return node
	})
	o.counts[class] = c
	return c, nil
}

// deltaOf counts, by node, how many more devices are free after what pods of the overlay took and freed; it may be
// negative.
func (o *Overlay) deltaOf(c *count) map[string]int {
	more, taken, node := map[string]int{}, sets.New[structured.DeviceID](), c.node()
	for _, claim := range o.taken {
		for result := range allocated(claim) {
			taken.Insert(idOf(result))
		}
	}
	for id := range taken {
		if !o.allocated.Has(id) {
			more[node[id]]--
		}
	}
	for _, claim := range o.freed {
		for result := range allocated(claim) {
			if id := idOf(result); o.allocated.Has(id) && !taken.Has(id) {
				more[node[id]]++
			}
		}
	}
	return more
}
