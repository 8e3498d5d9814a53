package judge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

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
	return slices.ContainsFunc(e.pods, func(p *v1.Pod) bool { return GangOf(p) == gang })
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
	if gone || podutil.IsPodTerminal(pod) {
		if GangOf(pod) != "" {
			j.disturbed[GangOf(pod)] = true
		}
		if !evicted(pod) && running(before) {
			j.ends = append(j.ends, j.now)
		}
	}
	if !gone && running(pod) && before.Spec.NodeName == "" {
		if before.Annotations[v1alpha1.TimeoutAnnotation] == "true" && !j.started[GangOf(pod)] {
			j.violate("waiting time", "pod %s started although the time of its gang is up", pod.Name)
		}
		j.begin(pod)
	}
	if old == nil || gone || podutil.IsPodTerminal(pod) || before.Spec.NodeName != pod.Spec.NodeName || before.Status.NominatedNodeName != pod.Status.NominatedNodeName {
		j.Happened(j.now)
	}
	put(j.pods, pod.UID, pod, gone)
	if !gone && running(pod) && before.Spec.NodeName == "" {
		j.judgeNode(pod)
		j.bound = append(j.bound, pod)
		j.judgeCapability(pod)
	}
	if name := GangOf(pod); name != "" {
		g := j.gangs()[name]
		if g == nil || g.running == 0 { // "new members go alone, until nothing of the gang runs" (gang/README.md)
			delete(j.started, name)
		} else if g.known && g.bound() >= g.min {
			j.started[name] = true
		}
		j.judgePartial(name, g)
	}
}

// evicted reports whether the scheduler evicted a pod that is gone.
func evicted(pod *v1.Pod) bool {
	_, c := podutil.GetPodCondition(&pod.Status, v1.DisruptionTarget)
	return c != nil && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
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
		case podutil.IsPodTerminal(p):
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
// bound, because it was interrupted or lost members, ... passes all limits" (fairshare/README.md).
func (j *Judge) judgeCapability(pod *v1.Pod) {
	passes := func(other *v1.Pod) bool {
		return GangOf(other) != "" && (j.disturbed[GangOf(other)] || slices.ContainsFunc(j.evictions, func(e *eviction) bool { return e.of(GangOf(other)) }))
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
