package invariant

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Queue is a queue, as far as its bounds go.
type Queue struct {
	Name, Parent string
	// Capability bounds what pods of the queue, and of those below it, use together.
	Capability v1.ResourceList
}

// Room is what CheckRoom looked at.
type Room struct {
	// Waiting are groups of gangs and single pods that wait for a node; Judged those that could start.
	Waiting, Judged int
	// Left counts the groups and pods that were not judged, by reason.
	Left map[string]int
}

// unit is what has to be placed together: the gangs of a group, or one more member of one that runs.
type unit struct {
	gangs   []*gang
	pending []*pod // those that have to be placed
	queue   string
	// topology is what they have to share; domain is where, if some run already.
	topology, domain string
}

func (u *unit) String() string {
	var names []string
	for _, g := range u.gangs {
		names = append(names, g.String())
	}
	return strings.Join(names, " with ")
}

// CheckRoom checks that nothing waits for which there is clear room. It is for a cluster in which nothing happens any
// more.
//
// Clear room is counted without trying placements: a node has as many slots as of the largest member fit into what is
// free on it. All that may hold room without being seen (a NonStrict gang that is being gathered, a pod that is
// nominated; with queues, every other pod that waits) takes away as many slots as it could destroy anywhere. What is
// left is room in whatever way the others are placed, so that a finding is never a matter of packing.
func (c *Checker) CheckRoom() Room {
	room := Room{Left: map[string]int{}}
	for _, u := range c.waiting() {
		room.Waiting++
		if why := c.cannotStart(u); why != "" {
			room.Left[why]++
			continue
		}
		room.Judged++
		slots, destroyed, where := c.slots(u, c.config.AllQueues)
		if slots-destroyed < len(u.pending) {
			continue
		}
		c.violate(FreeRoom, u.String(), c.now.Format(stamp), u.gangs[0].past,
			"%d members wait (the largest asks for %s), and there is room for %d%s, %d of which others that wait could take; %s was told %q",
			len(u.pending), text(largest(u.pending)), slots, where, destroyed, u.pending[0].name, u.pending[0].told)
	}
	return room
}

// waiting lists what waits, in order.
func (c *Checker) waiting() []*unit {
	var units []*unit
	done := map[*gang]bool{}
	for _, key := range slices.Sorted(maps.Keys(c.active)) {
		g := c.active[key]
		if done[g] || !slices.ContainsFunc(slices.Collect(maps.Values(g.pods)), (*pod).pending) {
			continue
		}
		if g.whole() {
			for _, p := range sorted(g.pods) {
				if p.pending() {
					units = append(units, c.unit([]*pod{p}, g))
				}
			}
			continue
		}
		u := c.missing(g)
		for _, one := range u.gangs {
			done[one] = true
		}
		units = append(units, u)
	}
	return units
}

// missing returns what a gang and its group lack to be whole.
func (c *Checker) missing(g *gang) *unit {
	group := append([]*gang{g}, c.together(g)...)
	var missing []*pod
	for _, one := range group {
		members := slices.DeleteFunc(sorted(one.pods), func(p *pod) bool { return !p.pending() })
		missing = append(missing, members[:min(len(members), max(0, one.min-one.have()))]...)
	}
	return c.unit(missing, group...)
}

// clearRoom reports whether there is clear room for what a gang lacks, beside all else that waits: while pods come and
// go room may be held anywhere for any of them.
func (c *Checker) clearRoom(g *gang) bool {
	u := c.missing(g)
	if c.cannotStart(u) != "" || c.standing() {
		return false
	}
	slots, destroyed, _ := c.slots(u, true)
	return slots-destroyed >= len(u.pending)
}

func sorted(pods map[types.UID]*pod) []*pod {
	return slices.SortedFunc(maps.Values(pods), func(a, b *pod) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.uid, b.uid)) })
}

func (c *Checker) unit(pending []*pod, gangs ...*gang) *unit {
	u := &unit{gangs: gangs, pending: pending, queue: defaultQueue}
	for _, g := range gangs {
		if queue := c.queueOf(g); queue != "" {
			u.queue = queue
		}
		if g.topology == "" {
			continue
		}
		u.topology = g.topology
		for _, p := range g.pods {
			if n := c.nodes[p.node]; p.counts() && !p.ended() && n != nil {
				u.domain = n.labels[g.topology]
			}
		}
	}
	return u
}

func (c *Checker) queueOf(g *gang) string {
	for _, p := range g.pods {
		if p.queue != "" {
			return p.queue
		}
	}
	return c.objects[g.key].Labels[keyQueue]
}

// cannotStart returns why a unit has to wait whatever room there is.
func (c *Checker) cannotStart(u *unit) string {
	for _, g := range u.gangs {
		switch {
		case g.bad:
			return "what its pods say makes no sense"
		case !g.known:
			return "its minimum is not known: its PodGroup is gone"
		case g.there() < g.min:
			return "members are missing"
		case len(c.together(g)) < len(g.groups)-1 && !g.started:
			return "gangs of its group are missing"
		}
		for _, p := range g.pods {
			if p.timedOut {
				return "its waiting time ran out"
			}
			if p.wants != "" {
				return "it waits for a Reservation by name"
			}
		}
	}
	if len(u.pending) == 0 {
		return "members are missing"
	}
	return c.overCeiling(u)
}

// overCeiling returns the queue whose capability the unit would exceed.
func (c *Checker) overCeiling(u *unit) string {
	byName := map[string]Queue{}
	for _, q := range c.config.Queues {
		byName[q.Name] = q
	}
	below := func(name, top string) bool {
		for range byName {
			if name == top {
				return true
			}
			name = byName[name].Parent
		}
		return name == top
	}
	for name := u.queue; name != ""; name = byName[name].Parent {
		used := amounts{}
		for _, p := range c.pods {
			if queue := cmp.Or(c.queueOf(p.gang), defaultQueue); p.node != "" && !p.ended() && below(queue, name) {
				used.add(p.requests, 1)
			}
		}
		for _, p := range u.pending {
			used.add(p.requests, 1)
		}
		for resource, bound := range amountsOf(byName[name].Capability) {
			if used[resource] > bound {
				return "its queue has a ceiling"
			}
		}
		if byName[name].Parent == name {
			break
		}
	}
	return ""
}

// slots returns the number of members of a unit for which there is room, and how many of the slots others could
// destroy: all that wait, or those that may hold room in a cluster in which nothing happens.
func (c *Checker) slots(u *unit, all bool) (slots, destroyed int, where string) {
	size := largest(u.pending)
	byDomain := map[string]int{}
	for _, n := range c.nodes {
		if n.gone || n.cordoned {
			continue
		}
		domain := ""
		if u.topology != "" {
			domain = n.labels[u.topology]
			if domain == "" || u.domain != "" && domain != u.domain {
				continue
			}
		}
		byDomain[domain] += fits(n, size)
	}
	for _, domain := range slices.Sorted(maps.Keys(byDomain)) {
		if byDomain[domain] > slots {
			slots = byDomain[domain]
			if domain != "" {
				where = " in " + domain
			}
		}
	}
	for _, p := range c.pods {
		if p.pending() && !slices.Contains(u.pending, p) && c.hasNode(p.requests) && (all || p.nominated != "" || p.gang.nonStrict && !p.gang.whole()) {
			destroyed += destroys(p.requests, size)
		}
	}
	return slots, destroyed, where
}

// largest returns the most that any of them asks for, resource by resource.
func largest(pods []*pod) amounts {
	most := amounts{}
	for _, p := range pods {
		for name, n := range p.requests {
			most[name] = max(most[name], n)
		}
	}
	return most
}

// fits returns how many pods of that size fit into what is free on a node.
func fits(n *node, size amounts) int {
	least := int64(-1)
	for name, each := range size {
		if each > 0 {
			if slots := max(0, n.allocatable[name]-n.used[name]) / each; least < 0 || slots < least {
				least = slots
			}
		}
	}
	return int(max(0, least))
}

// hasNode reports whether a pod of that size fits on a node that is empty. One that does not takes no room.
func (c *Checker) hasNode(size amounts) bool {
	for _, n := range c.nodes {
		if fits(&node{allocatable: n.allocatable}, size) > 0 {
			return true
		}
	}
	return false
}

// destroys returns how many slots of that size a pod takes at most, wherever it is put.
func destroys(p, size amounts) int {
	most := int64(0)
	for name, each := range size {
		if each > 0 {
			most = max(most, (p[name]+each-1)/each)
		}
	}
	return int(most)
}

func text(a amounts) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if name != v1.ResourcePods {
			parts = append(parts, amountText(name, a[name])+" "+string(name))
		}
	}
	return strings.Join(parts, ", ")
}

// Demand returns what is asked for by pods for which there can be room, what there is, of one resource, and how many
// pods wait.
func (c *Checker) Demand(resource v1.ResourceName) (asked, there int64, waiting int) {
	for _, p := range c.pods {
		if !p.ended() && !p.deleting && c.hasNode(p.requests) {
			asked += p.requests[resource]
		}
		if p.pending() {
			waiting++
		}
	}
	for _, n := range c.nodes {
		if !n.gone && !n.cordoned {
			there += n.allocatable[resource]
		}
	}
	return asked, there, waiting
}

// CheckEmpty checks that nothing is left over, once everything was deleted. Gauges are those of the
// scheduler that have to be 0, by name and labels.
func (c *Checker) CheckEmpty(gauges map[string]float64) {
	for _, p := range c.pods {
		c.violate(LeftOver, "pod "+p.name, "", p.gang.past, "it is there (node %q, %s) when everything was deleted", p.node, p.phase)
	}
	for _, name := range slices.Sorted(maps.Keys(gauges)) {
		if gauges[name] != 0 {
			c.violate(LeftOver, "metric "+name, "", nil, "it is %s when everything was deleted", fmt.Sprintf("%g", gauges[name]))
		}
	}
}

// busyFor is how long, in healthy time, no pod has ended by itself when what still happens is no work: longer than pods
// run that end by themselves.
const busyFor = 30 * time.Second

// CheckQuiet checks that a cluster to which users and faults do nothing any more, and in which something happens all
// the same, is at work: as long as pods end others take their places.
func (c *Checker) CheckQuiet() {
	if c.since(c.finished) > busyFor {
		c.violate(FreeRoom, "the cluster", "", nil, "it does not come to rest, and no pod has ended by itself for %.0f healthy seconds",
			c.since(c.finished).Seconds())
	}
}

// CheckMarks checks that no pod that runs still has the mark of an eviction. It is for a cluster in which nothing
// happens any more.
func (c *Checker) CheckMarks() {
	for _, p := range c.pods {
		if p.marked && !p.deleting && !p.ended() && p.node != "" && !p.lost {
			c.violate(LeftOver, "pod "+p.name, p.markedSince.at.Format(stamp), p.gang.past,
				"marked as evicted at %s, and it runs on: %s", p.markedSince.at.Format(stamp), p.markMessage)
		}
	}
}

// Report takes in something that was found elsewhere.
func (c *Checker) Report(i Invariant, object, format string, args ...any) {
	c.violate(i, object, fmt.Sprintf(format, args...), nil, format, args...)
}
