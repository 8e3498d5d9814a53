package judge

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

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
// keeps its share, and so may keep u out: what did not fit lends it, what was not tried does not. What alone
// exceeds a ceiling asks for nothing (fairshare/README.md).
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
	if _, c := podutil.GetPodCondition(&u.pods[0].Status, v1.PodScheduled); c != nil {
		return c.Reason + ": " + c.Message
	}
	return "nothing said"
}

// judgeOrder: "by priority, then ... age" (gang/README.md); "Inside a queue the order is: priority, gangs that do not
// run yet before surplus, dominant share, age" (fairshare/README.md). Who waited at the last rest,
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
			if !w.before(s.unit) || j.restarted && w.priority == s.priority && w.isSingle() && s.isSingle() {
				continue // "any other pod" counts from "when it entered the queue" (queuesort/README.md), which is anew then
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
// of a higher priority may have preempted it; "if incomplete gangs block each other, ... the youngest gives back what it
// holds" (behaviour.md).
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
		older := s.minimum && s.priority == u.priority && s.created.Before(u.created)
		if s.priority > u.priority || older {
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
