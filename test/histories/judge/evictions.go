package judge

import (
	"cmp"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// judgeEvictions judges what was evicted since the last rest.
func (j *Judge) judgeEvictions() {
	for _, e := range j.evictions {
		victims := map[string][]*v1.Pod{} // by the job of the preemptor
		for _, pod := range e.pods {
			preemptor := j.seen[j.preemptor[pod.UID]]
			if preemptor == nil && j.restarted {
				continue // the event is lost
			}
			if preemptor == nil {
				j.violate("evictions", "no event says for which pod %s was evicted", pod.Name)
				return
			}
			victims[jobOf(preemptor)] = append(victims[jobOf(preemptor)], pod)
			j.judgePriority(pod, preemptor)
			j.judgePlaced(pod, preemptor)
			j.judgeVictimGang(pod)
		}
		if len(victims) == 1 && !j.restarted && !e.shaken {
			j.judgeNecessary(e, slices.Collect(maps.Keys(victims))[0])
		}
	}
}

// judgePriority: "Only pods of a lower priority than every member of the preemptor ... With FairShare ... by default pods
// of lower priority in the same queue, then what other queues have beyond their share" (preemption/README.md).
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
	g := j.gangs()[gangOf(preemptor)]
	if now == nil || ended(now) || j.disturbed[gangOf(preemptor)] {
		return
	}
	for _, s := range j.starts { // "until they are bound, the gang gives up, or a preemptor of higher priority needs them"
		if s.priority > priority(preemptor) && (!j.queued || s.queue == j.queueOf(preemptor)) {
			return
		}
	}
	j.Counts["placed"]++
	if now.Spec.NodeName == "" && (g == nil || g.bound() < g.min) {
		j.violate("placed", "pod %s was evicted for %s, which waits (%s)", victim.Name, jobOf(preemptor), told(unit{pods: []*v1.Pod{now}}))
	}
}

// judgeVictimGang: "The rest of a gang goes whole, on all nodes"; "evictBrokenGangs: when a gang that was below its
// minimum loses pods, evict the rest of it" (preemption/README.md).
func (j *Judge) judgeVictimGang(victim *v1.Pod) {
	g := j.gangs()[gangOf(victim)]
	if g == nil || g.running == 0 {
		return
	}
	j.Counts["victim gangs"]++
	if g.bound() < g.min {
		j.violate("victim gangs", "gang %s lost pod %s and runs on with %d of %d", g.name, victim.Name, g.bound(), g.min)
	}
}

// judgeNecessary: "Victims are taken in this order until the preemptor fits; then those that it can do without are spared"
// (preemption/README.md): with any one of them it would not fit. A single pod that could have taken the place of another
// on its node comes before it by "Lower priority; then victims that violate no PodDisruptionBudget".
func (j *Judge) judgeNecessary(e *eviction, preemptor string) {
	at := slices.IndexFunc(e.units, func(u unit) bool { return u.job == preemptor })
	if at < 0 {
		return
	}
	u := e.units[at]
	if held(u, e.units) || j.limited(e, u) {
		return
	}
	for _, s := range j.starts { // the domain that was cleared for it
		if s.job == preemptor && u.topology != "" && j.nodes[s.pods[0].Spec.NodeName] != nil {
			u.domain = j.nodes[s.pods[0].Spec.NodeName].Labels[u.topology]
		}
	}
	free, bundles, lost := e.before.free(false), map[string][]*v1.Pod{}, map[string]int{}
	for _, pod := range e.pods {
		lost[gangOf(pod)]++
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
		if g := gangs[gangOf(pod)]; g != nil && g.bound()-lost[g.name] < g.min {
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
	for _, victim := range e.pods {
		for _, other := range e.before.sorted() {
			if gangOf(victim) != "" || gangOf(other) != "" || e.before.queueOf(victim) != e.before.queueOf(other) || !running(other) || other.Spec.NodeName != victim.Spec.NodeName || size(other) != size(victim) || slices.ContainsFunc(e.pods, func(p *v1.Pod) bool { return p.UID == other.UID }) {
				continue
			}
			j.Counts["cheaper"]++
			if c := cmp.Compare(priority(other), priority(victim)); c < 0 || c == 0 && e.before.violates(victim) && !e.before.violates(other) {
				j.violate("cheaper", "pod %s was evicted for %s, and %s on the same node would have done", victim.Name, u.job, other.Name)
			}
		}
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
	deserved := e.before.deserved(e.units)
	return !e.before.below(u.queue, u.need()) || float64(e.before.used(u.queue)+u.need()) > deserved[u.queue]
}

// judgeReclaim: "A queue never has more than it deserves after it reclaimed"; "all queues together lose less of what they
// deserve than the preemptor asks for" (fairshare/README.md).
func (j *Judge) judgeReclaim(e *eviction, u unit) {
	for _, q := range e.before.queues {
		if q.Spec.Parent != "" || len(q.Spec.Deserved)+len(q.Spec.Guarantee) > 0 {
			return
		}
	}
	for _, g := range e.before.gangs() {
		if g.known && g.bound() < g.min && slices.ContainsFunc(e.pods, func(p *v1.Pod) bool { return gangOf(p) == g.name }) {
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

// deserved divides the cluster by weight, clamped by capability and by what is asked for: "All capacity is shared by
// weight ... and clamped by guarantee, by capability, and by what is asked for" (fairshare/README.md).
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
		if w.fits(u, empty) {
			asks[u.queue] += float64(u.need())
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
