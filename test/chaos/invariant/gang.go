package invariant

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// gang is the pods that name the same gang, or one pod that names none: a gang of one.
type gang struct {
	key    string // namespace/name
	single bool
	// bad: what its pods say makes no sense, so that they need not be bound.
	bad  bool
	pods map[types.UID]*pod
	// done counts the members that have succeeded and are gone, while there are others.
	done int

	// endsFor is the preemptor for which the last of its pods was evicted that had to be.
	endsFor string

	// What its user has set, read from the pods first, then from the PodGroup. known is whether the minimum is known.
	annotations map[string]string
	known       bool
	min         int
	nonStrict   bool
	topology    string
	groups      []string

	// A life begins when the first member is bound. started is whether the minimum was bound together in it: from then
	// on members that are lost are replaced one by one, and that is no partial gang.
	started bool
	// repair is what changed it before it started: a member was lost in another way than by the scheduler, or its user
	// changed it. From then on it is judged only where it has all that it needs.
	repair string
	// emptySince is when the last bound member was lost.
	emptySince *moment
	partial    *spell
	split      *moment
	// groupSplit is since when it has started and a gang of its group, which could have, has not.
	groupSplit *moment
	// lives distinguishes violations of one life from those of the next.
	lives int

	// changedAt is when its user, a node or chance last changed it.
	changedAt  time.Time
	changedWhy string
	// roomLostAt is when a node was last lost on which it may have been promised room.
	roomLostAt time.Time
	// placed is when it became whole and when it ceased to be, in order.
	placed []change
	wave   *wave
	past   history
}

// spell is a time in which a gang is partial.
type spell struct {
	since       moment
	interrupted bool
	// doubt is what may have cost it a member or room that it had been promised; empty: nothing did. Else the only time
	// that counts is how long, without a break, its members and clear room for them have been there: since clock.
	doubt string
	clock moment
}

// change is a point in time from which a gang was whole, or not.
type change struct {
	at    time.Time
	whole bool
}

// String names the gang for users, on one line.
func (g *gang) String() string {
	if g.single {
		return "pod " + strings.TrimPrefix(g.key, "pod:")
	}
	quoted := strconv.Quote(g.key)
	return "gang " + quoted[1:len(quoted)-1]
}

// gangKey returns namespace/name of the gang of a pod; empty for none.
func gangKey(p *v1.Pod) string {
	name := cmp.Or(p.Annotations[keyGang], p.Labels[keyGroup], p.Labels[keyGroupX])
	if name == "" {
		return ""
	}
	return p.Namespace + "/" + name
}

// gangOf finds or makes the gang of a pod.
func (c *Checker) gangOf(p *v1.Pod) *gang {
	key := gangKey(p)
	single := key == ""
	if single {
		key = "pod:" + p.Namespace + "/" + p.Name
	}
	g := c.gangs[key]
	if g == nil {
		g = &gang{key: key, single: single, pods: map[types.UID]*pod{}}
		c.gangs[key] = g
		c.counts.Gangs++
	}
	g.annotations = p.Annotations
	_, g.bad = p.Labels[keyBadInput]
	c.read(g)
	return g
}

// read takes in what the user has set for a gang: annotations of pods win over those of the PodGroup, and these over
// its spec.
func (c *Checker) read(g *gang) {
	if g.single {
		g.known, g.min = true, 1
		return
	}
	object, exists := c.objects[g.key]
	get := func(key string) string {
		if value := g.annotations[key]; value != "" {
			return value
		}
		return object.Annotations[key]
	}
	was := g.min
	g.known = false
	if n, err := strconv.Atoi(get(keyMin)); err == nil && n > 0 {
		g.known, g.min = true, n
	} else if exists && object.Min > 0 {
		g.known, g.min = true, object.Min
	}
	if g.known && was != 0 && was != g.min {
		c.changed(g, "minimum is "+strconv.Itoa(g.min))
	}
	g.nonStrict = get(keyMode) == "NonStrict"
	g.topology = get(keyTopology)
	g.groups = nil
	if err := json.Unmarshal([]byte(get(keyGroups)), &g.groups); err != nil {
		g.groups = nil
	}
}

// have counts the members that are bound, or were until they succeeded.
func (g *gang) have() int {
	n := g.done
	for _, p := range g.pods {
		if p.counts() {
			n++
		}
	}
	return n
}

// runs reports whether members have a node and have not come to their end.
func (g *gang) runs() bool {
	for _, p := range g.pods {
		if p.counts() && !p.ended() {
			return true
		}
	}
	return false
}

// there counts the members that are bound or could be.
func (g *gang) there() int {
	n := g.have()
	for _, p := range g.pods {
		if p.pending() {
			n++
		}
	}
	return n
}

// priority returns the lowest of its members' priorities.
func (g *gang) priority() int32 {
	lowest, first := int32(0), true
	for _, p := range g.pods {
		if first || p.priority < lowest {
			lowest, first = p.priority, false
		}
	}
	return lowest
}

// whole reports whether its minimum is bound.
func (g *gang) whole() bool { return g.known && g.have() >= g.min }

// changed takes in that the gang is not any more what the scheduler last placed.
func (c *Checker) changed(g *gang, why string) {
	g.changedAt, g.changedWhy = c.now, why
	if !g.started && (g.partial != nil || g.have() > 0) {
		g.repair = why
	}
	if g.partial != nil {
		g.partial.clock = c.moment()
	}
	c.note(&g.past, g.String(), "%s", why)
}

// empty takes in that a gang has no pods left.
func (c *Checker) empty(g *gang) {
	delete(c.active, g.key)
	delete(c.ending, g.key)
	g.begin(c)
	g.wave = nil
	g.annotations = nil
}

// begin ends a life, and begins the next.
func (g *gang) begin(*Checker) {
	g.started, g.repair, g.partial, g.emptySince, g.split, g.groupSplit = false, "", nil, nil, nil, nil
	g.lives++
}

// judge looks at a gang after something happened, or time passed.
func (c *Checker) judge(g *gang) {
	if c.listing {
		return
	}
	have := g.have()
	if whole := g.whole(); len(g.placed) == 0 && whole || len(g.placed) > 0 && g.placed[len(g.placed)-1].whole != whole {
		g.placed = append(g.placed, change{c.now, whole})
		c.note(&g.past, g.String(), "whole: %t (%d bound, minimum %d)", whole, have, g.min)
	}
	switch {
	case have == 0:
		c.judgeEmpty(g)
	case !g.known:
		g.partial = nil // it cannot start now: its PodGroup is gone
	case have >= g.min:
		c.start(g)
	case !g.started:
		c.judgePartial(g, have)
	}
	c.judgeSplit(g)
	c.judgeGroup(g)
	c.judgeWave(g, have)
}

func (c *Checker) judgeEmpty(g *gang) {
	if g.partial != nil || !g.started && g.repair == "" {
		g.partial = nil
		return
	}
	if g.emptySince == nil {
		now := c.moment()
		g.emptySince = &now
	}
	if c.since(*g.emptySince) >= lifeGap {
		g.begin(c)
	}
}

// start takes in that the minimum is bound.
func (c *Checker) start(g *gang) {
	g.emptySince = nil
	if !g.started {
		g.started, g.repair = true, ""
		c.counts.Started++
		if g.partial != nil {
			if g.partial.doubt == "" {
				c.counts.LongestPartial = max(c.counts.LongestPartial, c.since(g.partial.since))
			}
			if g.partial.interrupted {
				c.counts.Interrupted++
			}
		}
	}
	g.partial = nil
}

// nodeLag is how late a scheduler may know that a node is gone or cordoned, or a member lost: bindings may have been on
// their way.
const nodeLag = 1500 * time.Millisecond

func (c *Checker) judgePartial(g *gang, have int) {
	g.emptySince = nil
	if g.partial == nil {
		g.partial = &spell{since: c.moment(), clock: c.moment()}
		for _, n := range c.nodes {
			if !n.lostAt.at.IsZero() && c.now.Sub(n.lostAt.at) < nodeLag && mayNeed(g, n) {
				g.partial.doubt = "node " + n.name + " was lost"
			}
		}
		if !g.changedAt.IsZero() && c.now.Sub(g.changedAt) < nodeLag+c.slowest {
			g.partial.doubt = g.changedWhy
		}
	}
	if g.repair != "" {
		g.partial.doubt = g.repair
	}
	if g.partial.doubt != "" {
		c.judgeDoubt(g, have)
		return
	}
	lasted := c.since(g.partial.since)
	if c.ending[g.key] || lasted <= partialFor {
		return
	}
	c.violate(Partial, g.String(), strconv.Itoa(g.lives), g.past,
		"%d of its minimum of %d bound for %.1f healthy seconds, since %s, and never all of it; %d members are there",
		have, g.min, lasted.Seconds(), g.partial.since.at.Format(stamp), g.there())
}

// mayNeed reports whether a gang may have been promised room on a node: one of its pods is bound or nominated there, or
// one fits there beside what stays. Room that is held cannot be seen.
func mayNeed(g *gang, n *node) bool {
	stays := &node{allocatable: n.allocatable, used: maps.Clone(n.used)}
	for _, p := range n.pods {
		if p.deleting {
			stays.used.add(p.requests, -1)
		}
	}
	for _, p := range g.pods {
		if p.node == n.name || p.pending() && (p.nominated == n.name || fits(stays, p.requests) > 0) {
			return true
		}
	}
	return false
}

// judgeDoubt judges a partial gang that may have lost a member or room: the scheduler has to find other room for it,
// and there may be none.
func (c *Checker) judgeDoubt(g *gang, have int) {
	s := g.partial
	if len(c.down) > 0 || s.clock.faults != c.faults || c.blind() || c.ending[g.key] || !c.clearRoom(g) {
		s.clock = c.moment()
		return
	}
	if c.since(s.clock) <= doubtFor {
		return
	}
	c.violate(Partial, g.String(), strconv.Itoa(g.lives), g.past,
		"%d of its minimum of %d bound since %s, and never all of it; before, %s, and for %.1f healthy seconds since %s its %d members have been there, and room for them",
		have, g.min, s.since.at.Format(stamp), s.doubt, c.since(s.clock).Seconds(), s.clock.at.Format(stamp), g.there())
}

// judgeSplit checks that a gang is in one domain of the topology that it requires.
func (c *Checker) judgeSplit(g *gang) {
	domains := map[string][]string{}
	if g.topology != "" {
		for _, p := range g.pods {
			if n := c.nodes[p.node]; p.counts() && !p.ended() && !p.lost && n != nil && n.labels[g.topology] != "" {
				domain := n.labels[g.topology]
				domains[domain] = append(domains[domain], p.name+" on "+p.node)
			}
		}
	}
	if len(domains) < 2 {
		g.split = nil
		return
	}
	if g.split == nil {
		now := c.moment()
		g.split = &now
	}
	if c.now.Sub(g.split.at) < splitFor {
		return
	}
	var text []string
	for _, domain := range slices.Sorted(maps.Keys(domains)) {
		slices.Sort(domains[domain])
		text = append(text, domain+": "+strings.Join(domains[domain], ", "))
	}
	c.violate(RackSplit, g.String(), strconv.Itoa(g.lives), g.past, "it requires one %s and is in %d: %s",
		g.topology, len(domains), strings.Join(text, "; "))
}

// judgeGroup checks that the gangs of a group start together: once one has started in this life, the
// others that could have follow.
func (c *Checker) judgeGroup(g *gang) {
	if g.started && g.groupSplit == nil && len(g.groups) > 1 {
		now := c.moment()
		g.groupSplit = &now
	}
	if g.groupSplit == nil || c.since(*g.groupSplit) <= partialFor {
		return
	}
	for _, other := range c.together(g) {
		if other.started || !other.known || other.repair != "" || other.partial != nil && other.partial.doubt != "" {
			continue
		}
		// It is excused by a change that made it another gang than the one that was to start with this one.
		if other.changedAt.After(g.groupSplit.at.Add(-2*time.Second)) || other.there() < other.min || c.ending[g.key] || c.ending[other.key] ||
			other.roomLostAt.After(g.groupSplit.at.Add(-nodeLag)) {
			continue
		}
		if other.bornAfter(g.groupSplit.at) {
			continue
		}
		c.violate(GroupPartial, g.String(), strconv.Itoa(g.lives), slices.Concat(g.past, other.past),
			"it has started at %s, %.1f healthy seconds ago, and %s of its group, which has %d members, has %d of its minimum of %d bound",
			g.groupSplit.at.Format(stamp), c.since(*g.groupSplit).Seconds(), other, other.there(), other.have(), other.min)
	}
}

// bornAfter reports whether the gang became whole, or ceased to be, after that moment or up to two seconds before: then
// its present life may be a later one.
func (g *gang) bornAfter(at time.Time) bool {
	for i := len(g.placed) - 1; i >= 0; i-- {
		if g.placed[i].at.After(at.Add(-2 * time.Second)) {
			return true // it came or went since
		}
	}
	return false
}

// together returns the other gangs of a gang's group: those that it names and that name it.
func (c *Checker) together(g *gang) []*gang {
	var others []*gang
	for _, key := range g.groups {
		if other := c.gangs[key]; other != nil && other != g && len(other.pods) > 0 && slices.Contains(other.groups, g.key) {
			others = append(others, other)
		}
	}
	return others
}

// groupWhole reports whether a gang and all others of its group are whole.
func (c *Checker) groupWhole(g *gang) bool {
	if !g.whole() {
		return false
	}
	return !slices.ContainsFunc(c.together(g), func(other *gang) bool { return !other.whole() })
}

// wholeDuring reports whether a gang was whole all the time from one moment to another.
func (g *gang) wholeDuring(from, to time.Time) bool {
	whole := false
	for _, one := range g.placed {
		if one.at.After(to) {
			break
		}
		if !one.at.After(from) {
			whole = one.whole
		} else if !one.whole {
			return false
		}
	}
	return whole
}
