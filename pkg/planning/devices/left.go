package devices

import (
	"errors"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// count is the free devices of a class. Counting is expensive if many are allocated, so changes by an overlay are
// counted separately.
type count struct {
	bounded bool
	// node is the node of each device; on is how many free ones each node has.
	node map[structured.DeviceID]string
	on   map[string]int
	// delta is how many more each node had free when the overlay had this version.
	delta   map[string]int
	version int
}

// Left bounds how many more devices of a class could be allocated on a node. bounded is false if the class selects
// devices that several nodes reach, or that can be allocated more than once.
func (o *Overlay) Left(class, node string) (left int, bounded bool, err error) {
	c, err := o.counted(class)
	if c == nil {
		return 0, false, err
	}
	if c.delta == nil || c.version != o.version {
		c.delta, c.version = o.deltaOf(c), o.version
	}
	return c.on[node] + c.delta[node], c.bounded, nil
}

// Among counts the devices of a class among those that claims would have, each once. untold are the claims for which
// that is unknown: those that would not be allocated, and all if Left is not bounded. Claims that do not exist have
// none.
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
		case c == nil || !c.bounded || claim.Status.Allocation == nil:
			untold = append(untold, claim)
			continue
		}
		for result := range allocated(claim) {
			if id := idOf(result); c.node[id] != "" {
				ids.Insert(id)
			}
		}
	}
	return len(ids), untold, nil
}

// counted returns the count of a class without the overlay's changes; nil if it is unknown at the moment.
func (o *Overlay) counted(class string) (*count, error) {
	if c := o.counts[class]; c != nil {
		return c, nil
	}
	return o.count(class)
}

// count computes and caches the count of a class.
func (o *Overlay) count(class string) (c *count, err error) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.allocated == nil {
		if o.allocated, err = o.s.real.ResourceClaims().ListAllAllocatedDevices(); err != nil {
			return nil, nil // it is being changed
		}
		o.counts = map[string]*count{}
	}
	c = &count{node: map[structured.DeviceID]string{}, on: map[string]int{}}
	c.bounded, err = o.s.stock.forEach(class, func(id structured.DeviceID, node string) {
		c.node[id] = node
		if !o.allocated.Has(id) {
			c.on[node]++
		}
	})
	if err != nil {
		return nil, err
	}
	o.counts[class] = c
	return c, nil
}

// deltaOf counts, by node, how many more devices are free after what pods of the overlay took and freed; it may be
// negative.
func (o *Overlay) deltaOf(c *count) map[string]int {
	more, taken := map[string]int{}, sets.New[structured.DeviceID]()
	for _, claim := range o.taken {
		for result := range allocated(claim) {
			taken.Insert(idOf(result))
		}
	}
	for id := range taken {
		if !o.allocated.Has(id) {
			more[c.node[id]]--
		}
	}
	for _, claim := range o.freed {
		for result := range allocated(claim) {
			if id := idOf(result); o.allocated.Has(id) && !taken.Has(id) {
				more[c.node[id]]++
			}
		}
	}
	return more
}
