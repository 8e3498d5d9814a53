package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Judge takes in what is seen of a cluster, in order, and says what should not have been.
type Judge struct {
	world
	queued bool // whether there are queues
	now    time.Time
	seen   map[types.UID]*v1.Pod // all pods ever seen, as they were last
	// partial is since when gangs are bound in part that have not started.
	partial map[string]time.Time
	// waited is what waited at the last rest, and left what was free then.
	waited []unit
	left   room
	// starts and evictions are those since the last rest; disturbed are the gangs that lost pods otherwise, and changed
	// is whether queues were changed.
	starts    []start
	evictions []*eviction
	disturbed map[string]bool
	changed   bool
	restarted bool // the scheduler was
	// happened is when something last happened that may let something start.
	happened time.Time
	// rested is when the scheduler last was at rest, and nodesChanged when nodes or budgets last came,
	// went or were changed.
	rested, nodesChanged time.Time
	preemptor            map[types.UID]types.UID // by victim, as events say
	ends                 []time.Time             // of pods that were not evicted, since the last rest
	found                []string
	nominated            map[types.UID]time.Time // since when pods are
	bound                []*v1.Pod               // at this instant
	// Counts is how often each promise was put to the test.
	Counts map[string]int
}

// start is a unit that was bound.
type start struct {
	unit
	free room            // before
	used map[string]bool // the queues that could not have taken more
	pods []*v1.Pod       // as they are bound
	rest []*v1.Pod       // pods of others that were bound after it began
	late time.Duration   // after something happened
	// several pods ended a moment before: those that come first may have been tried after the first of these.
	several bool
}

// eviction is what the scheduler evicted for one preemptor.
type eviction struct {
	pods   []*v1.Pod
	before world // as it was when the first went
	units  []unit
	at     time.Time // when the first went
}

// of reports whether a gang lost pods.
func (e *eviction) of(gang string) bool {
	return slices.ContainsFunc(e.pods, func(p *v1.Pod) bool { return gangOf(p) == gang })
}

// New returns a judge; queued is whether the scheduler has queues.
func New(queued bool) *Judge {
	return &Judge{world: newWorld(), queued: queued, seen: map[types.UID]*v1.Pod{}, partial: map[string]time.Time{}, disturbed: map[string]bool{}, nominated: map[types.UID]time.Time{}, preemptor: map[types.UID]types.UID{}, Counts: map[string]int{}}
}

// Found returns what was found.
func (j *Judge) Found() []string { return j.found }

func (j *Judge) violate(promise, format string, args ...any) {
	j.found = append(j.found, promise+": "+fmt.Sprintf(format, args...))
}

// Preempted takes in an event: a pod was evicted for another.
func (j *Judge) Preempted(victim, preemptor types.UID) { j.preemptor[victim] = preemptor }

// Observe takes in an object as it is now, or as it was when it was deleted.
func (j *Judge) Observe(at time.Time, object any, gone bool) {
	j.pass(at)
	switch o := object.(type) {
	case *v1.Node:
		put(j.nodes, o.Name, o, gone)
		j.nodesChanged = at
	case *coscheduling.PodGroup:
		put(j.groups, o.Name, o, gone)
	case *v1alpha1.Queue:
		put(j.queues, o.Name, o, gone)
		j.changed = true
	case *policyv1.PodDisruptionBudget:
		put(j.budgets, o.Name, o, gone)
		j.nodesChanged = at
	case *v1.Pod:
		j.pod(o, gone)
	}
}

// pass lets time pass. What was nominated may have been bound elsewhere in the instant that is over.
func (j *Judge) pass(to time.Time) {
	if to.After(j.now) {
		for _, pod := range j.bound {
			j.judgeNominated(pod)
		}
		j.bound = nil
	}
	j.now = to
}

// Happened takes in that something happened that may let something start.
func (j *Judge) Happened(at time.Time) { j.happened = at }

// Restarted takes in that the scheduler begins anew. What the one before it had begun, it has begun to end.
func (j *Judge) Restarted(at time.Time) {
	j.restarted = true
	j.Happened(at)
	for name := range j.partial {
		j.partial[name] = at.Add(prompt)
	}
}

func put[K comparable, V any](in map[K]V, key K, value V, gone bool) {
	if gone {
		delete(in, key)
	} else {
		in[key] = value
	}
}

func (j *Judge) pod(pod *v1.Pod, gone bool) {
	old := j.pods[pod.UID]
	before := old
	if before == nil {
		before = &v1.Pod{}
	}
	j.seen[pod.UID] = pod
	if evicted(pod) && (gone || pod.DeletionTimestamp != nil) && before.DeletionTimestamp == nil {
		j.evict(pod)
	}
	if node := pod.Status.NominatedNodeName; node == "" {
		delete(j.nominated, pod.UID)
	} else if node != before.Status.NominatedNodeName {
		j.nominated[pod.UID] = j.now
	}
	if gone || ended(pod) {
		if gangOf(pod) != "" {
			j.disturbed[gangOf(pod)] = true
		}
		if !evicted(pod) && running(before) {
			j.ends = append(j.ends, j.now)
		}
	}
	if !gone && running(pod) && before.Spec.NodeName == "" {
		if before.Annotations[v1alpha1.TimeoutAnnotation] == "true" && !j.started[gangOf(pod)] {
			j.violate("waiting time", "pod %s started although the time of its gang is up", pod.Name)
		}
		j.begin(pod)
	}
	if old == nil || gone || ended(pod) || before.Spec.NodeName != pod.Spec.NodeName || before.Status.NominatedNodeName != pod.Status.NominatedNodeName {
		j.Happened(j.now)
	}
	put(j.pods, pod.UID, pod, gone)
	if !gone && running(pod) && before.Spec.NodeName == "" {
		j.judgeNode(pod)
		j.bound = append(j.bound, pod)
		j.judgeCapability(pod)
	}
	if name := gangOf(pod); name != "" {
		g := j.gangs()[name]
		if g == nil || g.running == 0 { // "new members go alone, until nothing of it runs" (gang/README.md)
			delete(j.started, name)
		} else if g.known && g.bound() >= g.min {
			j.started[name] = true
		}
		j.judgePartial(name, g)
	}
}

// evicted reports whether the scheduler evicted a pod that is gone.
func evicted(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
	})
}

// begin notes that a pod is being bound, and what was free before its unit was.
func (j *Judge) begin(pod *v1.Pod) {
	for i := range j.starts {
		s := &j.starts[i]
		if s.minimum && s.job == jobOf(pod) && len(s.pods) < s.count {
			s.pods = append(s.pods, pod)
			return
		}
	}
	for i := range j.starts {
		j.starts[i].rest = append(j.starts[i].rest, pod)
	}
	for _, u := range j.units() {
		if slices.ContainsFunc(u.pods, func(p *v1.Pod) bool { return p.UID == pod.UID }) {
			s := start{unit: u, free: j.free(false), used: map[string]bool{}, pods: []*v1.Pod{pod}, late: j.now.Sub(j.happened), several: j.endsSince(j.now.Add(-burst)) > 1}
			for _, w := range j.waited {
				s.used[w.job] = !j.below(w.queue, w.need())
			}
			j.starts = append(j.starts, s)
			return
		}
	}
}

// endsSince counts pods that ended, and were not evicted.
func (j *Judge) endsSince(at time.Time) (n int) {
	for _, end := range j.ends {
		if end.After(at) {
			n++
		}
	}
	return n
}

func (j *Judge) evict(pod *v1.Pod) {
	if len(j.evictions) == 0 {
		before := j.world
		before.nodes, before.pods, before.groups = maps.Clone(j.nodes), maps.Clone(j.pods), maps.Clone(j.groups)
		before.queues, before.budgets, before.started = maps.Clone(j.queues), maps.Clone(j.budgets), maps.Clone(j.started)
		j.evictions = append(j.evictions, &eviction{before: before, units: j.units(), at: j.now})
	}
	j.evictions[0].pods = append(j.evictions[0].pods, pod)
}

// judgeNode: "So no node is oversold" (behaviour.md).
func (j *Judge) judgeNode(pod *v1.Pod) {
	j.Counts["oversold"]++
	node := j.nodes[pod.Spec.NodeName]
	if node == nil {
		return
	}
	sum := int64(0)
	for _, p := range j.pods {
		if running(p) && p.Spec.NodeName == node.Name {
			sum += size(p)
		}
	}
	if has := node.Status.Allocatable[GPU]; sum > has.Value() {
		j.violate("oversold", "node %s has %d GPUs, %d are used with pod %s", node.Name, has.Value(), sum, pod.Name)
	}
}

// judgeNominated: "All members are nominated. Their places are held ... until they are bound, the gang gives up, or a
// preemptor of higher priority ... needs them" (preemption/README.md).
func (j *Judge) judgeNominated(pod *v1.Pod) {
	node := j.nodes[pod.Spec.NodeName]
	if node == nil || j.restarted {
		return
	}
	sum, held := int64(0), false
	for _, p := range j.pods {
		switch {
		case ended(p):
		case p.Spec.NodeName == node.Name && p.DeletionTimestamp == nil:
			sum += size(p)
		case p.Spec.NodeName == "" && p.Status.NominatedNodeName != "" && jobOf(p) != jobOf(pod) && priority(p) >= priority(pod) && j.now.Sub(j.nominated[p.UID]) > burst:
			held = true
			if p.Status.NominatedNodeName == node.Name {
				sum += size(p)
			}
		}
	}
	if !held {
		return
	}
	j.Counts["nominated"]++
	if has := node.Status.Allocatable[GPU]; sum > has.Value() {
		j.violate("nominated", "pod %s took a place on node %s, of whose %d GPUs %d are used or promised", pod.Name, node.Name, has.Value(), sum)
	}
}

// judgeCapability: "No capability is ever exceeded, nor that of a queue above"; "A gang with only part of its minimum
// bound, interrupted or having lost members, ... passes all limits" (fairshare/README.md).
func (j *Judge) judgeCapability(pod *v1.Pod) {
	passes := func(other *v1.Pod) bool {
		return gangOf(other) != "" && (j.disturbed[gangOf(other)] || slices.ContainsFunc(j.evictions, func(e *eviction) bool { return e.of(gangOf(other)) }))
	}
	if !j.queued || slices.ContainsFunc(slices.Collect(maps.Values(j.pods)), func(p *v1.Pod) bool { return running(p) && passes(p) }) {
		return
	}
	j.Counts["capability"]++
	if !j.below(j.queueOf(pod), 0) {
		j.violate("capability", "queue %s uses %d with pod %s", j.queueOf(pod), j.used(j.queueOf(pod)), pod.Name)
	}
}

// burst is how long the bindings of a gang may take: no time passes between them.
const burst = time.Second

// judgePartial: a gang is bound whole or not at all: "released together" (gang/README.md).
func (j *Judge) judgePartial(name string, g *gang) {
	since, was := j.partial[name]
	part := g != nil && g.known && !j.started[name] && g.running > 0 && g.bound() < g.min && !j.disturbed[name]
	switch {
	case part && !was:
		j.partial[name] = j.now
	case was:
		if j.now.Sub(since) > burst && !j.disturbed[name] {
			j.violate("all or nothing", "gang %s was bound in part for %v", name, j.now.Sub(since))
		}
		if !part {
			delete(j.partial, name)
		}
	}
}

// Rest judges what there is when nothing happens any more.
func (j *Judge) Rest(at time.Time) {
	j.pass(at)
	waiting := j.units()
	gangs := j.gangs()
	for _, name := range slices.Sorted(maps.Keys(gangs)) {
		j.judgePartial(name, gangs[name])
		j.judgeTopology(gangs[name])
		if gangs[name].timedOut {
			j.Counts["waiting time"]++
		}
	}
	for _, u := range waiting {
		j.judgeIdle(u, waiting)
	}
	j.judgeLate(waiting)
	j.judgeOrder(waiting)
	j.judgeHeld(waiting)
	j.judgeEvictions()
	j.waited, j.starts, j.evictions, j.disturbed, j.changed = waiting, nil, nil, map[string]bool{}, false
	j.left, j.rested, j.ends = j.free(false), at, nil
	j.restarted = false
	for name, g := range gangs {
		if g.known && g.bound() < g.min && g.bound() > 0 {
			j.disturbed[name] = true // it is in repair
		}
	}
}

// judgeTopology: "required-topology: all members inside one domain of it, always"; "Later members stay in the required
// domain" (behaviour.md).
func (j *Judge) judgeTopology(g *gang) {
	if g.topology == "" || g.running == 0 {
		return
	}
	j.Counts["topology"]++
	if len(g.domains) > 1 {
		j.violate("topology", "gang %s is in %v", g.name, slices.Sorted(maps.Keys(g.domains)))
	}
}

// held reports whether a NonStrict gang other than u waits, and so may hold room: "What fits is held, out of reach of
// all other pods" (behaviour.md).
func held(u unit, among []unit) bool {
	return slices.ContainsFunc(among, func(o unit) bool { return o.nonStrict && o.minimum && o.job != u.job })
}

// aboveCeiling reports whether something waits in another queue than u's because others use what a ceiling allows. It
// keeps its share, and so may keep u out: what did not fit lends it, what was not tried does not. What is above a
// ceiling all by itself asks for nothing (fairshare/README.md).
func (j *Judge) aboveCeiling(u unit, among []unit) bool {
	return slices.ContainsFunc(among, func(o unit) bool {
		return o.queue != u.queue && !j.below(o.queue, o.need()) && j.allowed(o.queue) >= o.need()
	})
}

// judgeIdle: "tried again ... when a change can help: a node, a pod that ends, a new member" (behaviour.md), and
// "whatever can be placed is, in the end" (fairshare/README.md): nothing waits beside room for all of it. Where there
// are no queues, nor does it beside room that pods of lower priority have: "Makes room for a gang or a single pod that
// does not fit" (preemption/README.md).
func (j *Judge) judgeIdle(u unit, waiting []unit) {
	if held(u, waiting) || j.aboveCeiling(u, waiting) {
		return
	}
	j.Counts["idle"]++
	free := j.free(false)
	if j.fits(u, free) && (!j.queued || j.open(u.queue) && j.below(u.queue, u.need())) {
		j.violate("idle", "%s waits for %d x %d GPUs (%s), and free are %v", u.job, u.count, u.size, told(u), free)
		return
	}
	j.judgeDue(u)
	if j.queued || u.extra || u.nonStrict { // a NonStrict gang that holds some evicts for the rest beside it
		return
	}
	j.Counts["preempts"]++
	for _, pod := range j.pods {
		if running(pod) && priority(pod) < u.priority {
			free.add(pod, 1)
		}
	}
	if j.fits(u, free) {
		j.violate("preempts", "%s of priority %d waits for %d x %d GPUs (%s), and with those of lower priority there are %v", u.job, u.priority, u.count, u.size, told(u), free)
	}
}

// prompt is within what time something starts that something helped; a gang that nothing helped is tried after a
// minute.
const prompt = 15 * time.Second

// judgeLate: "tried again, by priority and then age, when a change can help" (behaviour.md), not some time later.
// Pauses after searches for victims are longer, and what NonStrict gangs hold is given back later.
func (j *Judge) judgeLate(waiting []unit) {
	if len(j.evictions) > 0 || slices.ContainsFunc(slices.Concat(waiting, j.waited), func(u unit) bool { return u.nonStrict && u.minimum }) {
		return
	}
	for _, s := range j.starts {
		j.Counts["late"]++
		if s.late > prompt && !s.nonStrict {
			j.violate("late", "%s started %v after anything had happened", s.job, s.late)
		}
	}
}

// open reports whether a queue and all above it admit pods.
func (j *Judge) open(queue string) bool {
	return !slices.ContainsFunc(j.above(queue), func(name string) bool {
		q := j.queues[name]
		return q == nil && name != defaultQueue || q != nil && q.Spec.Closed
	})
}

// told returns what the first pod of a unit says of itself.
func told(u unit) string {
	for _, c := range u.pods[0].Status.Conditions {
		if c.Type == v1.PodScheduled {
			return c.Reason + ": " + c.Message
		}
	}
	return "nothing said"
}

// judgeOrder: "by priority, then ... age" (gang/README.md); "Inside a queue the order is: priority, gangs that do not
// run yet before members beyond a minimum, dominant share, age" (fairshare/README.md). Who waited at the last rest,
// waits now, and would have fitted when one started that ranks after it, was passed over. Room that others took since
// who do not rank after it is not counted, nor is room that was made by evictions, or by several pods that ended one
// after the other. Members beyond a minimum may hear of room a moment later than gangs do or, with queues, sooner.
func (j *Judge) judgeOrder(waiting []unit) {
	if j.changed || slices.ContainsFunc(slices.Concat(waiting, j.waited), func(u unit) bool { return u.nonStrict && u.minimum }) {
		return
	}
	for _, w := range j.waited {
		if w.extra || !slices.ContainsFunc(waiting, func(u unit) bool { return u.job == w.job && u.count == w.count && u.pods[0].UID == w.pods[0].UID }) {
			continue
		}
		for _, s := range j.starts {
			if j.queued && (w.queue != s.queue || s.extra) || len(j.evictions) > 0 || s.nonStrict || s.several || j.disturbed[w.job] || j.disturbed[s.job] {
				continue
			}
			if w.before(s.unit) || s.before(w) {
				j.Counts["order"]++
			}
			if !w.before(s.unit) {
				continue
			}
			free := maps.Clone(s.free)
			for _, pod := range s.rest {
				if u, ok := j.unitOf(pod); !ok || !w.before(u) {
					free.add(pod, -1)
				}
			}
			if j.fits(w, free) && !s.used[w.job] {
				j.violate("order", "%s of priority %d, made %s, waits and would have fitted into %v when %s of priority %d, made %s, started", w.job, w.priority, w.created.Format(time.TimeOnly), free, s.job, s.priority, s.created.Format(time.TimeOnly))
			}
		}
	}
}

// judgeHeld: "What fits is held, out of reach of all other pods"; "When it runs out, everything is given back, the
// waiting members get the annotation timeout" (behaviour.md). It is judged of the only NonStrict gang that waited at
// the last rest, if it waits still: what was free then is what it held, if it would fit into an empty cluster. Pods
// that come before it may have preempted it.
func (j *Judge) judgeHeld(waiting []unit) {
	if j.queued || j.restarted || len(j.evictions) > 0 || !j.nodesChanged.Before(j.rested) {
		return
	}
	holds := func(u unit) bool { return u.nonStrict && u.minimum }
	at, now := slices.IndexFunc(j.waited, holds), slices.IndexFunc(waiting, holds)
	if at < 0 || now < 0 || slices.ContainsFunc(j.waited[at+1:], holds) || slices.ContainsFunc(waiting[now+1:], holds) {
		return
	}
	u := j.waited[at]
	if waiting[now].job != u.job || waiting[now].count != u.count || j.disturbed[u.job] || u.topology != "" || !j.fits(u, j.free(true)) {
		return
	}
	held := j.left.holds(u)
	if held == 0 {
		return
	}
	if u.waits > 0 && u.waits < j.now.Sub(j.rested) {
		j.violate("waiting time", "gang %s waits and holds for more than %v", u.job, u.waits)
	}
	for _, s := range j.starts {
		if s.priority > u.priority {
			return
		}
	}
	j.Counts["held"]++
	if free := j.free(false); free.holds(u) < held {
		j.violate("held", "gang %s held %d of %d in %v, and %v is left", u.job, held, u.count, j.left, free)
	}
}

// unitOf returns the unit with which a pod was bound since the last rest.
func (j *Judge) unitOf(pod *v1.Pod) (unit, bool) {
	for _, s := range j.starts {
		if slices.ContainsFunc(s.pods, func(p *v1.Pod) bool { return p.UID == pod.UID }) {
			return s.unit, true
		}
	}
	return unit{}, false
}

func names(pods []*v1.Pod) string {
	var all []string
	for _, pod := range pods {
		all = append(all, pod.Name)
	}
	return strings.Join(all, ", ")
}
