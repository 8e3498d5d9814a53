package judge

import (
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// judgeEvictions judges what was evicted since the last rest.
func (j *Judge) judgeEvictions() {
	for _, e := range j.evictions {
		victims := map[types.UID][]*v1.Pod{} // by the preemptor
		for _, pod := range e.pods {
			preemptor := j.seen[j.preemptor[pod.UID]]
			if preemptor == nil && (j.restarted || j.endsSince(e.at.Add(-burst)) > 0) {
				continue // the event is lost, or somebody else deleted what the scheduler had marked
			}
			if preemptor == nil {
				j.violate("evictions", "no event says for which pod %s was evicted", pod.Name)
				return
			}
			victims[preemptor.UID] = append(victims[preemptor.UID], pod)
			if j.endsSince(e.at.Add(-burst)) == 0 { // else the preemptor may have found room, and the next takes what it freed
				j.judgePriority(pod, preemptor)
			}
			if j.nodesChanged.Before(e.at) { // else its place may be gone
				j.judgePlaced(pod, preemptor)
			}
			if j.endsSince(e.at) == 0 { // else its gang may have lost others since
				j.judgeVictimGang(pod)
			}
		}
		// What was decided may not have known what changed a moment before.
		if since := e.at.Add(-burst); len(victims) == 1 && !j.restarted && !j.nodesChanged.After(since) && j.endsSince(since) == 0 {
			if preemptor := j.seen[j.preemptor[e.pods[0].UID]]; !j.lostPlaces(preemptor) { // else it evicted more for others
				j.judgeNecessary(e, jobOf(preemptor))
			}
		}
	}
}

// judgePriority: "Only pods of a lower priority than every member of the preemptor ... With FairShare ... by
// default pods of lower priority in the same queue, then what other queues have beyond their share"
// (preemption/README.md).
func (j *Judge) judgePriority(victim, preemptor *v1.Pod) {
	if j.queued && j.queueOf(victim) != j.queueOf(preemptor) {
		return
	}
	j.Counts["priority"]++
	if priority(victim) >= priority(preemptor) {
		j.violate("priority", "pod %s of priority %d was evicted for %s of priority %d", victim.Name, priority(victim), preemptor.Name, priority(preemptor))
	}
}

// judgePlaced: "It evicts only if a what-if with all filters of the profile then places the preemptor's whole minimum"
// (preemption/README.md): at rest it has a place, unless it is gone.
func (j *Judge) judgePlaced(victim, preemptor *v1.Pod) {
	now := j.pods[preemptor.UID]
	g := j.gangs()[GangOf(preemptor)]
	if now == nil || podutil.IsPodTerminal(now) || j.disturbed[GangOf(preemptor)] {
		return
	}
	if j.lostPlaces(preemptor) {
		return
	}
	j.Counts["placed"]++
	if now.Spec.NodeName == "" && (g == nil || g.bound() < g.min) {
		j.violate("placed", "pod %s was evicted for %s, which waits (%s)", victim.Name, jobOf(preemptor), told(unit{pods: []*v1.Pod{now}}))
	}
}

// lostPlaces reports whether a preemptor may have lost its places: they are kept "until they are bound, the gang gives
// up, or a preemptor of higher priority needs them" (preemption/README.md).
func (j *Judge) lostPlaces(preemptor *v1.Pod) bool {
	return slices.ContainsFunc(j.starts, func(s start) bool {
		return s.priority > priority(preemptor) && (!j.queued || s.queue == j.queueOf(preemptor))
	})
}

// judgeVictimGang: "The rest of a gang goes whole, on all nodes"; "evictBrokenGangs: when a gang that was below its
// minimum loses pods, evict the rest of it" (preemption/README.md).
func (j *Judge) judgeVictimGang(victim *v1.Pod) {
	g := j.gangs()[GangOf(victim)]
	if g == nil || g.running == 0 {
		return
	}
	j.Counts["victim gangs"]++
	if g.bound() < g.min {
		j.violate("victim gangs", "gang %s lost pod %s and runs on with %d of %d", g.name, victim.Name, g.bound(), g.min)
	}
}

// judgeNecessary: "Victims are taken in this order until the preemptor fits; then those that it can do without are
// spared" (preemption/README.md): with any one of them it would not fit. A single pod that could have taken the place
// of another on its node comes before it by "Lower priority; then victims that violate no PodDisruptionBudget".
func (j *Judge) judgeNecessary(e *eviction, preemptor string) {
	at := slices.IndexFunc(e.units, func(u unit) bool { return u.job == preemptor })
	if at < 0 {
		return
	}
	u := e.units[at]
	if held(u, e.units) || j.limited(e, u) || e.before.said(u.pods[0], v1alpha1.PreferredTopologyAnnotation) != "" {
		return
	}
	for _, s := range j.starts {
		if s.job != preemptor && s.priority > u.priority { // it may have taken the room, so that more had to go
			return
		}
	}
	for _, s := range j.starts { // the domain that was cleared for it
		if s.job == preemptor && u.topology != "" && j.nodes[s.pods[0].Spec.NodeName] != nil {
			u.domain = j.nodes[s.pods[0].Spec.NodeName].Labels[u.topology]
		}
	}
	free, bundles, lost := e.before.free(false), map[string][]*v1.Pod{}, map[string]int{}
	for _, pod := range e.pods {
		lost[GangOf(pod)]++
	}
	for _, s := range j.starts { // their room was promised already
		for _, pod := range s.pods {
			if s.job != preemptor {
				free.add(pod, -1)
			}
		}
	}
	gangs := e.before.gangs()
	for _, pod := range e.pods {
		free.add(pod, 1)
		name := pod.Name
		if g := gangs[GangOf(pod)]; g != nil && g.bound()-lost[g.name] < g.min {
			name = g.name // it goes whole
		}
		bundles[name] = append(bundles[name], pod)
	}
	if !e.before.fits(u, free) {
		return // more ended than was evicted
	}
	for _, name := range slices.Sorted(maps.Keys(bundles)) {
		j.Counts["necessary"]++
		spared := maps.Clone(free)
		for _, pod := range bundles[name] {
			spared.add(pod, -1)
		}
		if e.before.fits(u, spared) {
			j.violate("necessary", "%s (%d x %d GPUs) evicted %s without need: %v would have been free", u.job, u.count, u.size, names(bundles[name]), spared)
		}
	}
	j.judgeCheaper(e, u, free)
}

// judgeCheaper: "Victims are taken in this order until the preemptor fits: Safe before Whole ... Lower priority; then
// victims that violate no PodDisruptionBudget" (preemption/README.md). So it does not fit where all goes that has a
// lower priority than the worst victim. Nor, if that violates a budget and nothing of lower priority does, where all
// goes that violates none. free is what there was without the victims. Surplus is not judged, nor is what goes with it.
func (j *Judge) judgeCheaper(e *eviction, u unit, free room) {
	if u.nonStrict {
		return
	}
	w, gangs, lost := &e.before, e.before.gangs(), map[string]int{}
	free = maps.Clone(free)
	for _, pod := range e.pods {
		free.add(pod, -1)
		lost[GangOf(pod)]++
	}
	surplus := func(g *gang) int { return min(g.running, g.bound()-g.min) }
	worst, violates := int32(math.MinInt32), false
	for _, pod := range e.pods {
		switch g := gangs[GangOf(pod)]; {
		case g != nil && (g.bound() < g.min || lost[g.name] <= surplus(g)):
		case priority(pod) > worst:
			worst, violates = priority(pod), w.violates(pod)
		case priority(pod) == worst:
			violates = violates || w.violates(pod)
		}
	}
	if worst == math.MinInt32 {
		return
	}
	lower, harmless := maps.Clone(free), maps.Clone(free)
	for _, pod := range w.sorted() {
		g := gangs[GangOf(pod)]
		if !running(pod) || w.queueOf(pod) != u.queue && j.queued || priority(pod) >= u.priority || g != nil && g.bound() < g.min {
			continue
		}
		whole := []*v1.Pod{pod}
		if g != nil {
			whole = g.pods
		}
		violating := slices.ContainsFunc(whole, w.violates)
		if priority(pod) < worst {
			lower.add(pod, 1)
		}
		if priority(pod) <= worst && !violating {
			harmless.add(pod, 1)
		}
		if violating && (priority(pod) < worst || g != nil && surplus(g) > 0) {
			violates = false // it may be that more of these would have to go
		}
	}
	j.Counts["cheaper"]++
	if w.fits(u, lower) {
		j.violate("cheaper", "%s was evicted for %s (%d x %d GPUs), for which what has a priority below %d would have sufficed: %v", names(e.pods), u.job, u.count, u.size, worst, lower)
	}
	if violates && w.fits(u, harmless) {
		j.violate("cheaper", "%s was evicted for %s (%d x %d GPUs), for which what violates no budget would have sufficed: %v", names(e.pods), u.job, u.count, u.size, harmless)
	}
}

// limited reports whether a limit of its queue may have been in a preemptor's way, or room was reclaimed, which
// judgeReclaim judges.
func (j *Judge) limited(e *eviction, u unit) bool {
	if !j.queued {
		return false
	}
	if slices.ContainsFunc(e.pods, func(p *v1.Pod) bool { return j.queueOf(p) != u.queue }) {
		j.judgeReclaim(e, u)
		return true
	}
	if j.aboveCeiling(u, e.units) {
		return true
	}
	if e.before.states() || slices.ContainsFunc(slices.Collect(maps.Values(e.before.queues)), func(q *v1alpha1.Queue) bool { return q.Spec.Parent != "" }) {
		return true
	}
	more := u.need()
	for _, s := range j.starts { // they may have been admitted already
		for _, pod := range s.pods {
			if before := e.before.pods[pod.UID]; s.queue == u.queue && s.job != u.job && (before == nil || before.Spec.NodeName == "") {
				more += size(pod)
			}
		}
	}
	deserved := e.before.deserved(e.units)
	return !e.before.below(u.queue, more) || float64(e.before.used(u.queue)+u.need()) > deserved[u.queue]
}

// judgeReclaim: "A queue never has more than it deserves after it reclaimed"; "Only the last job taken from a queue may
// cross it"; "all queues together lose less of what they deserve than the preemptor asks for" (fairshare/README.md).
func (j *Judge) judgeReclaim(e *eviction, u unit) {
	if slices.ContainsFunc(slices.Collect(maps.Values(e.before.queues)), func(q *v1alpha1.Queue) bool { return q.Spec.Parent != "" }) {
		return
	}
	if e.before.states() {
		j.judgeStated(e, u)
		return
	}
	for _, g := range e.before.gangs() {
		if g.known && g.bound() < g.min && slices.ContainsFunc(e.pods, func(p *v1.Pod) bool { return GangOf(p) == g.name }) {
			return // "when a gang that was below its minimum loses pods, evict the rest of it"
		}
	}
	j.Counts["reclaim"]++
	deserved := e.before.deserved(e.units)
	if has := float64(e.before.used(u.queue) + u.need()); has > deserved[u.queue]+1 {
		j.violate("reclaim", "queue %s reclaimed for %s and has %v, and deserves %.2f of %v", u.queue, u.job, has, deserved[u.queue], deserved)
	}
	lost := 0.0
	for name, due := range deserved {
		had, taken := e.before.used(name), int64(0)
		for _, pod := range e.pods {
			if e.before.queueOf(pod) == name {
				taken += size(pod)
			}
		}
		lost += max(0, due-float64(had-taken)) - max(0, due-float64(had))
	}
	if lost >= float64(u.need()) {
		j.violate("reclaim", "queues lost %.2f of what they deserve (%v) to %s, which asks for %d: evicted %s", lost, deserved, u.job, u.need(), names(e.pods))
	}
}

// judgeStated judges what was reclaimed from queues that state what they deserve, and for them. One that has no more
// than that loses nothing.
func (j *Judge) judgeStated(e *eviction, u unit) {
	if !e.before.exists() {
		return
	}
	j.Counts["reclaim"]++
	used := func(queue string) int64 {
		sum := e.before.used(queue)
		for _, s := range j.starts {
			for _, pod := range s.pods {
				if s.queue == queue && s.job != u.job {
					sum += size(pod)
				}
			}
		}
		return sum
	}
	has := e.before.used(u.queue) + u.need()
	for _, pod := range e.pods {
		if e.before.queueOf(pod) == u.queue {
			has -= size(pod)
		}
	}
	if q := e.before.queues[u.queue]; q != nil && has > stated(q) {
		j.violate("reclaim", "queue %s reclaimed for %s and has %d, and deserves %d", u.queue, u.job, has, stated(q))
	}
	for _, pod := range e.pods {
		if q := e.before.queues[e.before.queueOf(pod)]; q != nil && q.Name != u.queue && used(q.Name) <= stated(q) {
			j.violate("reclaim", "queue %s, which has %d and deserves %d, lost pod %s to %s", q.Name, used(q.Name), stated(q), pod.Name, u.job)
		}
	}
}

// stated returns what a queue says that it deserves.
func stated(q *v1alpha1.Queue) int64 {
	quantity := q.Spec.Deserved[GPU]
	return quantity.Value()
}

// states reports whether queues say what they deserve: in a history, all do or none.
func (w *world) states() bool {
	for _, q := range w.queues {
		return len(q.Spec.Deserved) > 0
	}
	return false
}

// exists reports whether there is as much as queues say that they deserve.
func (w *world) exists() bool {
	sum := int64(0)
	for _, gpus := range w.free(true) {
		sum += gpus
	}
	for _, q := range w.queues {
		sum -= stated(q)
	}
	return sum >= 0
}

// judgeDue: "If preemption finds no victims, and the queue would have no more than it deserves with the preemptor, room
// is taken from queues that have more than they deserve" (fairshare/README.md), which is all that queues have that
// deserve nothing: at rest, nothing waits for that.
func (j *Judge) judgeDue(u unit) {
	q := j.queues[u.queue]
	if !j.queued || !j.states() || !j.exists() || u.extra || u.nonStrict || q == nil {
		return
	}
	j.Counts["due"]++
	if !j.open(u.queue) || !j.below(u.queue, u.need()) || j.used(u.queue)+u.need() > stated(q) {
		return
	}
	free := j.free(false)
	for _, pod := range j.pods {
		if from := j.queues[j.queueOf(pod)]; running(pod) && from != nil && from != q && stated(from) == 0 {
			free.add(pod, 1)
		}
	}
	if j.fits(u, free) {
		j.violate("due", "%s waits for %d x %d GPUs (%s) of the %d that its queue %s deserves, and with what queues have that deserve nothing there are %v", u.job, u.count, u.size, told(u), stated(q), q.Name, free)
	}
}

// deserved divides the cluster by weight, clamped by capability and by what is asked for: "All capacity is shared by
// weight ... within guarantee, capability and demand" (fairshare/README.md).
func (w *world) deserved(waiting []unit) map[string]float64 {
	asks, weights, left := map[string]float64{}, map[string]float64{}, 0.0
	for _, gpus := range w.free(true) {
		left += float64(gpus)
	}
	empty := w.free(true)
	for _, pod := range w.pods {
		if running(pod) {
			asks[w.queueOf(pod)] += float64(size(pod))
			if _, ok := empty[pod.Spec.NodeName]; !ok {
				left += float64(size(pod)) // on a cordoned node what is used counts
			}
		}
	}
	for _, u := range waiting {
		if w.fits(u, empty) && w.allowed(u.queue) >= u.need() {
			asks[u.queue] += float64(int64(len(u.pods)) * u.size) // members beyond the minimum ask, too
		}
	}
	for name := range asks {
		weights[name] = 1
		if q := w.queues[name]; q != nil {
			weights[name] = float64(max(q.Spec.Weight, 1))
			if limit, ok := q.Spec.Capability[GPU]; ok {
				asks[name] = min(asks[name], float64(limit.Value()))
			}
		}
	}
	due := map[string]float64{}
	for len(weights) > 0 && left > 1e-9 {
		sum := 0.0
		for _, weight := range weights {
			sum += weight
		}
		step := math.Inf(1) // until the first has what it asks for
		for name, weight := range weights {
			step = min(step, (asks[name]-due[name])/weight)
		}
		step = min(step, left/sum)
		for name, weight := range weights {
			due[name] += step * weight
			left -= step * weight
		}
		maps.DeleteFunc(weights, func(name string, _ float64) bool { return asks[name]-due[name] < 1e-9 })
	}
	return due
}
