package invariant

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reasonPreempted is the reason of the event by which kube-scheduler, and schedulers that follow its ways, say on a pod
// that it was evicted, and for which preemptor: that is the related object.
const reasonPreempted = "Preempted"

// byWhom and byUID find the preemptor in the text, for events that relate to none: as Lockstep words it, and as
// kube-scheduler does.
var (
	byWhom = regexp.MustCompile(`(gang|pod) ([^\s/]+/[^\s/]+) \(priority -?\d+\)`)
	byUID  = regexp.MustCompile(`by pod ([0-9a-f-]{36})`)
)

// calledOff matches the event of a pod that was not on its node yet. It goes on, and may be evicted later for another
// preemptor.
var calledOff = regexp.MustCompile(`\(before it was on its node\)`)

// eviction is a pod that the scheduler evicted.
type eviction struct {
	pod, node string
	gang      string
	queue     string
	// surplus: its gang kept its minimum, or it was in none.
	surplus bool
	when    moment
	// listed: when exactly is not known.
	listed bool
	// unsure: something was faulty then, or the scheduler may not have seen all. It may have been cut short.
	unsure bool
	// slow is how long the API server took to answer then.
	slow time.Duration
	// gone is when it had ended; zero: not yet.
	gone   time.Time
	judged bool
}

// pursuit is a preemptor for which pods were evicted and that is not placed yet.
type pursuit struct {
	preemptor *gang
	// first is when the first pod was evicted for it, clock from when on it has to be placed: from then, or from the last
	// fault after that, or from when pods have ended that took too long to. The next leader has the time again.
	first, clock moment
	evictions    []*eviction
	// had is how many members were bound at first.
	had      int
	nodes    map[string]bool
	priority int32
	queue    string
	excuse   string
	// placed: by the time that an event named it, it was.
	placed bool
}

// wave is the loss of members of one gang to the scheduler.
type wave struct {
	first, last moment
	lost        []string
	// part is since when the gang has been in part.
	part *moment
}

// setMark takes in whether the scheduler has marked a pod as evicted.
func (c *Checker) setMark(p *pod, marked bool, message string) {
	if marked == p.marked {
		return
	}
	p.marked, p.markedSince, p.markMessage = marked, c.moment(), message
	if marked {
		c.note(&p.gang.past, p.gang.String(), "pod %s marked: %s", p.name, message)
	} else {
		c.note(&p.gang.past, p.gang.String(), "pod %s not marked any more", p.name)
	}
}

// judgeMarks checks that a pod that is marked is deleted, or is not marked any more. The next leader after a fault has
// the time again.
func (c *Checker) judgeMarks() {
	for _, p := range c.pods {
		if p.marked && p.markedSince.faults != c.faults {
			p.markedSince = c.moment()
		}
		if p.marked && !p.deleting && !p.ended() && p.node != "" && !p.lost && c.since(p.markedSince) > markedFor {
			c.violate(LeftOver, "pod "+p.name, p.markedSince.at.Format(stamp), p.gang.past,
				"marked as evicted at %s or before, and it runs on: %s", p.markedSince.at.Format(stamp), p.markMessage)
		}
	}
}

// evicted takes in that the scheduler deleted a pod, which counted for its gang until now, or not.
func (c *Checker) evicted(p *pod, listed, counted bool) {
	c.counts.Evictions++
	e := &eviction{pod: p.name, node: p.node, gang: p.gang.key, queue: c.queueOf(p.gang), when: c.moment(), listed: listed, unsure: len(c.down) > 0 || c.blind(), slow: c.slowest}
	c.evictions[p.uid] = e
	c.note(&p.gang.past, p.gang.String(), "pod %s evicted from %s: %s", p.name, p.node, p.markMessage)
	g, have := p.gang, p.gang.have()
	e.surplus = g.single || have >= g.min
	if counted && !g.single && g.known {
		if g.wave == nil && have+1 >= g.min {
			g.wave = &wave{first: e.when}
			c.counts.VictimGangs++
		}
		if g.wave != nil {
			g.wave.last, g.wave.part = e.when, nil
			g.wave.lost = append(g.wave.lost, p.name)
		}
	}
	if pursued := c.pursuits[g.key]; pursued != nil {
		pursued.excuse = "it was evicted itself"
	}
	if key := c.preemptor[p.uid]; key != "" {
		c.forWhom(e, key)
	}
}

func (o Told) apply(c *Checker) {
	victim := o.Event.InvolvedObject
	if o.Event.Reason != reasonPreempted || victim.Kind != "Pod" || c.preemptor[victim.UID] != "" || calledOff.MatchString(o.Event.Message) {
		return
	}
	key := c.preemptorOf(o.Event)
	if key == "" {
		return
	}
	c.preemptor[victim.UID] = key
	if gang := c.gangs[c.gangOfPod[victim.UID]]; gang != nil {
		c.note(&gang.past, gang.String(), "event on pod %s/%s: %s", victim.Namespace, victim.Name, o.Event.Message)
	}
	if e := c.evictions[victim.UID]; e != nil {
		c.forWhom(e, key)
	}
}

func (c *Checker) preemptorOf(event *v1.Event) string {
	if event.Related != nil {
		if key := c.gangOfPod[event.Related.UID]; key != "" {
			return key
		}
	}
	if found := byUID.FindStringSubmatch(event.Message); found != nil {
		return c.gangOfPod[types.UID(found[1])]
	}
	found := byWhom.FindStringSubmatch(event.Message)
	switch {
	case found == nil:
		return ""
	case found[1] == "pod":
		return "pod:" + found[2]
	}
	return found[2]
}

// forWhom judges an eviction whose preemptor is known.
func (c *Checker) forWhom(e *eviction, key string) {
	if e.judged {
		return
	}
	e.judged = true
	g := c.gangs[key]
	if g == nil {
		return
	}
	c.note(&g.past, g.String(), "for it pod %s was evicted from %s at %s", e.pod, e.node, e.when.at.Format(stamp))
	for _, member := range sorted(g.pods) {
		if member.pending() && !c.hasNode(member.requests) {
			c.violate(FutileEvict, g.String(), "no node", g.past, "pod %s was evicted from %s for it at %s, and its pod %s asks for more than any node has",
				e.pod, e.node, e.when.at.Format(stamp), member.name)
		}
	}
	if !c.wasPlaced(g, e) {
		if victim := c.gangs[e.gang]; victim != nil {
			victim.endsFor = key
		}
	} else if !c.begunWhole(key, e) && !c.takesSurplus(g, e) {
		c.violate(NeedlessEvict, g.String(), e.pod, g.past, "pod %s was evicted from %s for it at %s, when its minimum of %d was bound",
			e.pod, e.node, e.when.at.Format(stamp), g.min)
	}
	p := c.pursuits[key]
	if p == nil {
		c.counts.Preemptors++
		p = &pursuit{preemptor: g, first: e.when, clock: e.when, had: g.have(), nodes: map[string]bool{}, priority: g.priority()}
		c.pursuits[key] = p
		for _, member := range g.pods {
			p.queue = member.queue
			c.nominatedTo(member)
		}
	}
	p.placed = p.placed || c.placedSince(g, e.when.at)
	c.judgeAgain(p, e)
	p.evictions = append(p.evictions, e)
	p.nodes[e.node] = true
}

// victims lists the pods that were evicted.
func (p *pursuit) victims() string {
	var names []string
	for _, e := range p.evictions {
		names = append(names, e.pod)
	}
	return strings.Join(names, ", ")
}

// judgeAgain checks that no pod is evicted for a preemptor that has room already: all that were evicted for it have
// ended, and it was not bound. A preemptor in repair makes room for one member after the other. What was evicted before
// a fault was perhaps not all that had to be, so that it takes an eviction after it, and in calm, to know that there
// was room.
func (c *Checker) judgeAgain(p *pursuit, e *eviction) {
	var last time.Time
	complete := false
	for _, one := range p.evictions {
		if one.gone.IsZero() {
			return
		}
		last = maxTime(last, one.gone)
		complete = complete || one.when.faults == e.when.faults && !one.unsure && !one.listed
	}
	if !complete || e.unsure || e.listed || p.placed || e.when.at.Sub(last) <= usedWithin+e.slow || p.preemptor.have() > p.had || c.excuse(p) != "" {
		return
	}
	c.violate(FutileEvict, p.preemptor.String(), "again "+p.first.at.Format(stamp), p.preemptor.past,
		"pod %s was evicted for it at %s, when the %d pods that were evicted for it since %s had all ended at %s and it was not bound: %s",
		e.pod, e.when.at.Format(stamp), len(p.evictions), p.first.at.Format(stamp), last.Format(stamp), p.victims())
}

// wasPlaced reports whether a preemptor was placed for some time when a pod was evicted for it.
func (c *Checker) wasPlaced(g *gang, e *eviction) bool {
	from := e.when.at.Add(-inFlight - e.slow)
	if g.have()-g.done < g.min {
		return false // of members that are gone a scheduler does not know that they had succeeded
	}
	if e.listed || g.changedAt.After(from.Add(-2*time.Second)) && !g.changedAt.After(e.when.at) {
		return false
	}
	if !g.wholeDuring(from, e.when.at) {
		return false
	}
	return !slices.ContainsFunc(c.together(g), func(other *gang) bool { return !other.wholeDuring(from, e.when.at) })
}

// begunWhole reports whether what is left of a gang is evicted whose eviction began when its preemptor needed the room:
// a gang that is evicted whole ends whole.
func (c *Checker) begunWhole(preemptor string, e *eviction) bool {
	victim := c.gangs[e.gang]
	if victim == nil || victim.have() >= victim.min {
		return false
	}
	return slices.ContainsFunc(append(c.together(victim), victim), func(g *gang) bool { return g.endsFor == preemptor })
}

// takesSurplus reports whether a pod of another queue was evicted for a gang that has members beyond its minimum, and
// the gang of that pod keeps its own minimum: a queue of elastic gangs gets its share that way.
func (c *Checker) takesSurplus(g *gang, e *eviction) bool {
	return len(g.pods) > g.min && e.queue != c.queueOf(g) && e.surplus
}

// placedSince reports whether a gang and its group are whole, or were since that moment.
func (c *Checker) placedSince(g *gang, at time.Time) bool {
	return c.groupWhole(g) || len(c.together(g)) == 0 &&
		slices.ContainsFunc(g.placed, func(one change) bool { return one.whole && one.at.After(at) })
}

// nominatedTo notes where a preemptor is to go.
func (c *Checker) nominatedTo(p *pod) {
	if pursued := c.pursuits[p.gang.key]; pursued != nil && p.nominated != "" {
		pursued.nodes[p.nominated] = true
	}
}

// takenBy excuses preemptors whose room went to something more important. For a while after a fault it excuses them
// also for what is as important, or in another queue: it may have been tried first, when a nomination that was never
// stored was forgotten.
func (c *Checker) takenBy(p *pod) {
	for _, pursued := range c.pursuits {
		forgotten := pursued.first.faults != c.faults && (pursued.clock.faults != c.faults || c.since(pursued.clock) <= placedAfter)
		before := p.priority > pursued.priority || forgotten && (p.priority == pursued.priority || p.queue != pursued.queue)
		if pursued.nodes[p.node] && before && p.gang != pursued.preemptor {
			pursued.excuse = fmt.Sprintf("pod %s of priority %d came before it", p.name, p.priority)
		}
	}
}

// judgePursuits checks that preemptors are placed.
func (c *Checker) judgePursuits() {
	for _, key := range slices.Sorted(maps.Keys(c.pursuits)) {
		p := c.pursuits[key]
		kubelets := slices.ContainsFunc(p.evictions, func(e *eviction) bool { return e.gone.IsZero() && c.since(e.when) > podEndsWithin })
		if kubelets || p.clock.faults != c.faults || p.first.faults != c.faults && c.blind() {
			p.clock = c.moment()
		}
		within := placedWithin
		if p.clock != p.first {
			within = placedAfter
		}
		late := c.since(p.clock) > within
		switch excuse := c.excuse(p); {
		case p.placed || c.groupWhole(p.preemptor):
			c.counts.PreemptorsPlaced++
			c.log(p.preemptor.String(), "placed after %d evictions", len(p.evictions))
		case excuse != "" && (late || len(p.preemptor.pods) == 0):
			c.counts.PreemptorsExcused++
			c.log(p.preemptor.String(), "not placed after %d evictions, excused: %s", len(p.evictions), excuse)
		case late:
			c.violate(FutileEvict, p.preemptor.String(), p.first.at.Format(stamp), p.preemptor.past,
				"since %s, %s, %d pods were evicted for it, and it has %d of its minimum of %d bound: %s",
				p.first.at.Format(stamp), c.waited(p), len(p.evictions), p.preemptor.have(), p.preemptor.min, p.victims())
		default:
			continue
		}
		delete(c.pursuits, key)
	}
}

// waited words how long a preemptor has had to be placed.
func (c *Checker) waited(p *pursuit) string {
	text := fmt.Sprintf("%.1f healthy seconds", c.since(p.clock).Seconds())
	if p.clock != p.first {
		text += " after the last fault"
	}
	return text
}

// reservedFor excuses preemptors whose room is held now for something more important.
func (c *Checker) reservedFor(r *Reserved, node string) {
	for _, pursued := range c.pursuits {
		if pursued.nodes[node] && r.Priority > pursued.priority {
			pursued.excuse = fmt.Sprintf("Reservation %s of priority %d came before it", r.Name, r.Priority)
		}
	}
}

// excuse returns what kept a preemptor from being placed; empty: nothing did.
func (c *Checker) excuse(p *pursuit) string {
	g := p.preemptor
	before := p.first.at.Add(-2 * time.Second)
	for _, one := range append(c.together(g), g) {
		switch {
		case len(one.pods) == 0 || c.ending[one.key]:
			return "it is gone"
		case one.changedAt.After(before):
			return "it was changed: " + one.changedWhy
		case one.known && one.there() < one.min:
			return "it has " + strconv.Itoa(one.there()) + " members of " + strconv.Itoa(one.min)
		}
		for uid := range one.pods {
			if c.ending[string(uid)] {
				return "a member is ended"
			}
		}
	}
	for name := range p.nodes {
		if n := c.nodes[name]; n != nil && n.lostAt.at.After(before) {
			return "node " + name + " was lost"
		}
	}
	return p.excuse
}

// judgeWave checks that a gang that lost members to the scheduler is whole or gone.
func (c *Checker) judgeWave(g *gang, have int) {
	w := g.wave
	if w == nil {
		return
	}
	lost := g.changedAt.After(w.first.at.Add(-2*time.Second)) || c.ending[g.key]
	if !g.known || !g.runs() || have >= g.min || lost {
		if lost && have > 0 && have < g.min {
			c.counts.VictimGangsExcused++
		}
		g.wave = nil
		return
	}
	if w.part == nil || w.part.faults != c.faults {
		now := c.moment()
		w.part = &now
	}
	if len(c.down) > 0 || c.since(*w.part) <= victimsWithin {
		return
	}
	c.violate(BrokenVictim, g.String(), w.first.at.Format(stamp), g.past,
		"the scheduler evicted %d of its members from %s on (%s), and for %.1f healthy seconds %d of its minimum of %d have been bound",
		len(w.lost), w.first.at.Format(stamp), strings.Join(w.lost, ", "), c.since(*w.part).Seconds(), have, g.min)
	g.wave = nil
}

// UnknownPreemptors counts the evictions whose preemptor no event named: events may be lost.
func (c *Checker) UnknownPreemptors() int {
	n := 0
	for _, e := range c.evictions {
		if !e.judged {
			n++
		}
	}
	return n
}

// Evicted returns the pods that the scheduler evicted.
func (c *Checker) Evicted() []types.UID { return slices.Collect(maps.Keys(c.evictions)) }
