package usage

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// RecountDevices counts everything again: DeviceClasses count as other resources than before.
func (c *Counter) RecountDevices() {
	for uid := range c.pods {
		c.recount(uid)
	}
	for _, pod := range c.foreign {
		c.countForeign(pod)
	}
	c.recountHeld(func(held) bool { return true })
}

// SetUnlimited sets the resources of which more can be allocated than nodes have devices, in whatever pool.
func (c *Counter) SetUnlimited(names map[v1.ResourceName]bool) {
	if !c.nodes.SetUnlimited(names) {
		return
	}
	c.share()
	for uid := range c.pods {
		c.recount(uid) // a running pod counts for no more than its node has
	}
}

// Freed returns what a running pod gives back to its queue if others are gone already: a claim that they share is free
// with the last of them.
func (c *Counter) Freed(uid types.UID, gone map[types.UID]bool) resource.Vector {
	p, u := c.pods[uid], c.usageOf(uid)
	if p.Object == nil || len(p.Object.Spec.ResourceClaims) == 0 {
		return u.Amount
	}
	more := c.claims.Freed(p.Object, func(other types.UID) bool { return !gone[other] && c.usageOf(other).Runs })
	freed, pool := maps.Clone(u.Amount), v1alpha1.DefaultPool
	if of, known := c.nodes.Pool(p.Node); known {
		pool = of
	}
	freed.Add(more.In(pool), 1)
	return freed
}

func (c *Counter) usageOf(uid types.UID) queueing.Usage {
	u, _ := c.book.Counted(string(uid))
	return u
}

// ClaimsChanged counts pods again whose claims have changed, or which of their claims count for them. It reports
// whether there are any.
func (c *Counter) ClaimsChanged(uids map[types.UID]bool) bool {
	for _, uid := range slices.Sorted(maps.Keys(uids)) {
		if pod := c.foreign[uid]; pod != nil {
			c.countForeign(pod)
		} else {
			c.recount(uid)
		}
	}
	return len(uids) > 0
}

// recount counts a pod again where it is.
func (c *Counter) recount(uid types.UID) {
	p, known := c.pods[uid]
	u, counted := c.book.Counted(string(uid))
	if !known || !counted {
		return
	}
	p.Amount = c.claims.Amount(p.Object)
	if c.set(uid, p, u) {
		c.caller.Recounted(u.Job)
	}
}
