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

// count is the devices of a class that are left. Where many are allocated that is much to count, so what an overlay changes is
// counted beside it.
type count struct {
	bounded bool
	// node is the node of each device; on is how many each node has left.
	node map[structured.DeviceID]string
	on   map[string]int
	// more is how many more each node had left when the overlay had this version.
	more    map[string]int
	version int
}

// Left returns at most how many more devices of a class could be allocated on a node. bounded is false where the class selects
// devices that are reached from several nodes, or can be allocated more than once.
func (o *Overlay) Left(class, node string) (left int, bounded bool, err error) {
	c, err := o.counted(class)
	if c == nil {
		return 0, false, err
	}
	if c.more == nil || c.version != o.version {
		c.more, c.version = o.more(c), o.version
	}
	return c.on[node] + c.more[node], c.bounded, nil
}

// Among counts the devices of a class among those that claims would have, each once. It returns the claims, too, of which that cannot be
// told: those that would not be allocated, and all where Left is not bounded. Claims that do not exist have none.
func (o *Overlay) Among(class string, claims ...types.NamespacedName) (count int, untold []*resourceapi.ResourceClaim, err error) {
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

// counted returns what is left of a class where nothing differs in the overlay; nil if that cannot be told now.
func (o *Overlay) counted(class string) (*count, error) {
	if c := o.counts[class]; c != nil {
		return c, nil
	}
	return o.count(class)
}

// count counts a class for counted, and keeps that.
func (o *Overlay) count(class string) (c *count, err error) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	if o.allocated == nil {
		if o.allocated, err = o.s.real.ResourceClaims().ListAllAllocatedDevices(); err != nil {
			return nil, nil // it is changing right now
		}
		o.counts = map[string]*count{}
	}
	c = &count{node: map[structured.DeviceID]string{}, on: map[string]int{}}
	c.bounded, err = o.s.stock.each(class, func(id structured.DeviceID, node string) {
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

// more counts, by node, how many more devices are left with what pods of the overlay took and freed; where fewer are, it is negative.
func (o *Overlay) more(c *count) map[string]int {
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
