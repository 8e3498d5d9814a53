package queueing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// What does not fit asks for nodes, as far as the ceilings of its queues let it have them: several jobs that are each
// below a ceiling may be above it together, and nodes for all of them would idle.

// wishes is which jobs would have nodes, and which of them would be beyond a ceiling with them. It is computed on
// demand, and only if anything of it has changed: that a job is tried once more changes nothing.
type wishes struct {
	// touched are the jobs that may wish something else than is known; all of them exist.
	touched map[string]*job
	// of are the wishes of jobs that have a ceiling above them, and order has them in the order in which they come.
	of    map[string]*wish
	order []*wish
	// stale: what is used, or what is wished, has changed since it was computed.
	stale bool
	// changed: any of it may have changed since [Book.News] was called, or will count for less in a while.
	// relinked: queues have been described again since.
	changed, relinked bool
	// above are the ceilings above each queue that was looked up since any was described again, its own first.
	above    map[string][]*ceiling
	ceilings map[ceilingKey]*ceiling
}

type ceilingKey struct {
	queue string
	name  v1.ResourceName
}

// ceiling is how much of a resource a queue may have. While wishes are computed, used is what runs or is promised, and
// asked what jobs ask for besides.
type ceiling struct {
	ceilingKey
	of                *queue
	most, used, asked int64
}

// wish is what a job would have, under each ceiling, in order.
type wish struct {
	name     string
	priority int32
	created  time.Time
	asks     []ask
	// counts: it waits for nodes, or for its turn, and jobs that come after it have what it leaves.
	counts bool
	// overLimit: it is its turn although it is beyond a ceiling, and other pods have to make way for it. It counts in any
	// case.
	overLimit bool
	// over: it is beyond a ceiling, as last computed; beyond is the one from [wish.overCeiling].
	over   bool
	beyond Bound
}

// ask is what a job asks for under a ceiling, what is promised to it there, and how much more than that it asks for.
type ask struct {
	under                *ceiling
	need, promised, more int64
}

// compareWishes orders by: 1. priority, high first; 2. age; 3. name.
func compareWishes(v, w *wish) int {
	return cmp.Or(cmp.Compare(w.priority, v.priority), v.created.Compare(w.created), cmp.Compare(v.name, w.name))
}

func (w *wish) equal(other *wish) bool {
	return w.priority == other.priority && w.created.Equal(other.created) && w.counts == other.counts &&
		w.overLimit == other.overLimit &&
		slices.Equal(w.asks, other.asks)
}

// newWishes returns the wishes of jobs, of which nothing is known yet since queues have been described again.
func newWishes(jobs map[string]*job) wishes {
	w := wishes{touched: map[string]*job{}, of: map[string]*wish{}, above: map[string][]*ceiling{},
		ceilings: map[ceilingKey]*ceiling{}, relinked: true}
	maps.Copy(w.touched, jobs)
	return w
}

// touch notes that a job may wish something else.
func (w *wishes) touch(j *job) { w.touched[j.Name], w.changed = j, true }

// forget forgets a job.
func (w *wishes) forget(name string) {
	delete(w.touched, name)
	w.replace(name, nil)
}

// replace gives a job another wish; nil for none.
func (w *wishes) replace(name string, now *wish) {
	before := w.of[name]
	delete(w.of, name)
	if now != nil {
		w.of[name] = now
		w.order = append(w.order, now)
	}
	w.stale = w.stale || before != nil || now != nil
}

// beyond returns a ceiling that the job would exceed if nodes were added. What is used or promised counts, and so do
// the jobs before it (by priority, age, name) that wait for nodes or their turn, unless they exceed a ceiling
// themselves. A ceiling that the job exceeds alone comes first. It costs a look at all jobs, but only after a change.
func (b *Book) beyond(name string) (Bound, bool) {
	if j := b.jobs[name]; j == nil || !b.limited(b.missing(j)) {
		return Bound{}, false
	}
	w := &b.wishes
	for name, j := range w.touched {
		now, before := b.wish(j), w.of[name]
		if now == nil || before == nil || !now.equal(before) {
			w.replace(name, now)
		}
	}
	clear(w.touched)
	if w.stale {
		w.compute()
	}
	if one := w.of[name]; one != nil && one.over {
		return one.beyond, true
	}
	return Bound{}, false
}

// compute finds the jobs that are beyond a ceiling.
func (w *wishes) compute() {
	w.stale = false
	w.order = slices.DeleteFunc(w.order, func(one *wish) bool { return w.of[one.name] != one })
	slices.SortFunc(w.order, compareWishes)
	for _, c := range w.ceilings {
		c.used, c.asked = c.of.used[c.name]-c.of.turns[c.name], 0
	}
	for _, one := range w.order {
		one.beyond, one.over = one.overCeiling()
		if one.overLimit || one.counts && !one.over {
			for _, a := range one.asks {
				a.under.asked += a.more
			}
		}
	}
}

// overCeiling returns the first ceiling that a job would exceed with what others use, are promised, and ask for before
// it. A ceiling that it would exceed whatever others ask for comes before ones that it would not: room does not help it
// then.
func (w *wish) overCeiling() (first Bound, over bool) {
	for _, a := range w.asks {
		c := a.under
		bound := Bound{Reason: Capability, Queue: c.queue, Resource: c.name, Used: c.used + c.asked - a.promised,
			Ahead: c.asked, Need: a.need, Most: c.most}
		switch {
		case a.need == 0 || !bound.Exceeded(0):
		case !bound.behindOthers():
			return bound, true
		case !over:
			first, over = bound, true
		}
	}
	return first, over
}

// wish returns the wish of a job; nil if it wishes nothing, or no ceiling is above it.
func (b *Book) wish(j *job) *wish {
	needs, promised := b.missing(j), b.promised[j.Name]
	if j.phase == Outside || !b.limited(needs) {
		return nil
	}
	queues := slices.Sorted(maps.Keys(needs))
	one := &wish{name: j.Name, priority: j.Priority, created: j.Created, overLimit: j.turn.overLimit,
		counts: !j.waitsElsewhere && b.Shut(queues...).Reason == ""}
	for _, queue := range queues {
		for _, c := range b.ceilingsAbove(queue) {
			need := needs[queue][c.name]
			more := max(0, need-promised[queue][c.name])
			at := slices.IndexFunc(one.asks, func(a ask) bool { return a.under == c })
			if at < 0 {
				at = len(one.asks)
				one.asks = append(one.asks, ask{under: c, promised: b.at(promised, c.queue, c.name)})
			}
			one.asks[at].need += need
			one.asks[at].more += more
		}
	}
	return one
}

// ceilingsAbove returns the ceilings above a queue, its own first.
func (b *Book) ceilingsAbove(name string) []*ceiling {
	above, known := b.wishes.above[name]
	if known {
		return above
	}
	for _, at := range b.Path(name) {
		q := b.queues[at]
		for _, name := range slices.Sorted(maps.Keys(q.spec.Capability)) {
			key := ceilingKey{at, name}
			if b.wishes.ceilings[key] == nil {
				b.wishes.ceilings[key] = &ceiling{ceilingKey: key, of: q, most: q.spec.Capability[name]}
			}
			above = append(above, b.wishes.ceilings[key])
		}
	}
	b.wishes.above[name] = above
	return above
}

// limited reports whether any ceiling is above what is asked for.
func (b *Book) limited(needs Needs) bool {
	for queue := range needs {
		if len(b.ceilingsAbove(queue)) > 0 {
			return true
		}
	}
	return false
}

// missing returns what a job asks for that is not placed.
func (b *Book) missing(j *job) Needs {
	switch j.phase {
	case Failed:
		lacks := Needs{}
		for _, pod := range j.Pods {
			if u := b.usages[pod]; u.Job == j.Name && !u.placed() {
				lacks.Add(u.Queue, u.Option(0), 1)
			}
		}
		return lacks
	case Waiting:
		return j.Options[0]
	case Admitted:
		return j.need()
	default:
		return nil
	}
}
