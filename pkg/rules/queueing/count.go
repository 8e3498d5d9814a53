package queueing

import (
	"maps"
	"slices"
)

// Count records what a pod asks for, in place of what was counted under the name. What begins to
// run, or to be held, is taken off what counts for its job; what is not held any more comes back to
// it.
func (b *Book) Count(name string, u Usage) {
	before, known := b.usages[name]
	b.enter(u.Queue)
	u.refused, u.hopeless = before.refused && !u.Runs, before.hopeless && !u.Runs
	b.usages[name] = u
	b.noteHoard(before, -1)
	b.assign(name, before.Job, u.Job)
	if known {
		b.count(before, -1)
	}
	b.count(u, 1)
	b.noteHoard(u, 1)
	if known {
		b.leave(before.Queue)
	}
	same := known && before.Job == u.Job
	if known && !same {
		b.unhold(before.Job, name)
		b.withdraw(name, before)
	}
	if same && before.Queue != u.Queue {
		b.relocate(name, u, before)
	}
	switch placed := same && before.placed(); {
	case u.placed() && !placed && same:
		b.settle(name, u, before)
	case u.placed() && !placed:
		b.settle(name, u, u)
	case u.Runs && placed && before.Held:
		b.unhold(u.Job, name)
	case !u.placed() && placed:
		b.unsettle(name, u)
	}
}

// noteHoard notes that one more is held for a job, or with n = -1 one fewer.
func (b *Book) noteHoard(u Usage, n int) {
	j := b.jobs[u.Job]
	if j == nil || !u.Held || u.Runs {
		return
	}
	if j.hoards += n; j.hoards > 0 {
		b.hoarding[j] = true
	} else {
		delete(b.hoarding, j)
	}
}

// relocate moves what a failed job lacks to another queue, if the usage that asked for it has moved there: nothing else
// brings the job to the gate.
func (b *Book) relocate(name string, now, before Usage) {
	j := b.jobs[now.Job]
	if j == nil || j.phase != Failed || now.placed() || before.placed() {
		return
	}
	if j.Pod == name {
		j.Queue = now.Queue
		b.wishes.touch(j)
	}
	if _, lacks := j.lacked[before.Queue]; lacks {
		j.lacked = j.lacked.less(before.Queue, before.Queue, before.Option(0)).clone()
		j.lacked.Add(now.Queue, now.Option(0))
		b.wishes.touch(j)
	}
}

// uncount ends what was counted under a name.
func (b *Book) uncount(name string) {
	if u, ok := b.usages[name]; ok {
		delete(b.usages, name)
		b.noteHoard(u, -1)
		b.assign(name, u.Job, "")
		b.count(u, -1)
		b.leave(u.Queue)
		b.unhold(u.Job, name)
	}
}

func (b *Book) count(u Usage, n int64) {
	q := b.queues[u.Queue]
	b.request(q, u, n)
	switch {
	case u.Runs:
	case u.Held:
		b.use(u.Queue, u.Amount, n)
		return
	case u.Promised:
		b.use(u.Queue, u.Amount, n)
		b.promise(u, n)
		return
	default:
		return
	}
	q.allocated.Add(u.Amount, n)
	sum(q.byPriority, u.Priority, u.Amount, n)
	b.run(u.Queue, u.Amount, n)
	if u.Group == "" {
		return
	}
	before := b.running[u.Group] != nil
	sum(b.running, u.Group, u.Amount, n)
	if now := b.running[u.Group] != nil; now != before {
		for _, j := range slices.Collect(maps.Values(b.members[u.Group])) {
			b.relist(j)
		}
	}
}

// promise adds n times an amount to what is promised to a job.
func (b *Book) promise(u Usage, n int64) {
	if u.Job == "" {
		return // it has not been offered since it was promised
	}
	if b.promised[u.Job] == nil {
		b.promised[u.Job] = Needs{}
	}
	if sum(b.promised[u.Job], u.Queue, u.Amount, n); len(b.promised[u.Job]) == 0 {
		delete(b.promised, u.Job)
	}
	j := b.jobs[u.Job]
	if j == nil {
		return
	}
	b.wishes.touch(j)
	if j.phase == Waiting {
		b.relist(j)
	}
}

// sum adds n times an amount to that of a key, and removes the entry if nothing is left.
func sum[M ~map[K]Vector, K comparable](sums M, key K, amount Vector, n int64) {
	if sums[key] == nil {
		sums[key] = Vector{}
	}
	if sums[key].Add(amount, n); sums[key].Zero() {
		delete(sums, key)
	}
}

// settle takes what a usage asked for off what counts for an admitted job: it runs now, or is held.
// The turn ends with the last part. An empty name means that no pod has got it.
func (b *Book) settle(name string, now, asked Usage) {
	j := b.active(now.Job)
	if j == nil && now.Runs {
		delete(b.missed, now.Job) // it was placed without its turn
	}
	if j == nil || j.phase != Admitted {
		return
	}
	last := *j
	j.got = j.got || name != ""
	b.change(j, func(at int, need Needs) Needs { return need.less(asked.Queue, j.Queue, asked.Option(at)) })
	if now.Held && !now.Runs {
		if j.held == nil {
			j.held, j.whole = map[string]bool{}, &last
		}
		j.held[name] = true
	}
	b.finish(j, &last)
}

// withdraw takes off what counts for an admitted job what a usage asked for that is not part of it any more: it waits
// with another job now, or is gone. What the job was not admitted with does not count.
func (b *Book) withdraw(name string, u Usage) {
	if j := b.jobs[u.Job]; j != nil && j.phase == Admitted && !u.placed() && slices.Contains(j.Pods, name) {
		b.settle("", Usage{Job: u.Job, Queue: u.Queue, Runs: true}, u)
	}
}

// unsettle gives back to a job what was taken off it for a usage that was held.
func (b *Book) unsettle(name string, u Usage) {
	if j := b.jobs[u.Job]; j != nil && j.held[name] {
		delete(j.held, name)
		if !slices.Contains(j.in, u.Queue) { // it has moved meanwhile
			b.enter(u.Queue)
			j.in = append(j.in, u.Queue)
		}
		b.change(j, func(at int, need Needs) Needs {
			more := need.clone()
			more.Add(u.Queue, u.Option(at))
			return more
		})
	}
}

// unhold notes that a usage is not held any more, but runs or is gone.
func (b *Book) unhold(job, name string) {
	if j := b.jobs[job]; j != nil && j.held[name] {
		delete(j.held, name)
		b.finish(j, j.whole)
	}
}

// change replaces what an admitted job asks for.
func (b *Book) change(j *job, do func(at int, need Needs) Needs) {
	b.charge(j, -1)
	options := make([]Needs, len(j.options))
	for at, need := range j.options {
		options[at] = do(at, need)
	}
	j.options, j.needs = options, nil
	j.take(j.at)
	b.charge(j, 1)
}

// finish ends the turn of a job that has all that it asked for; last is how it was before. If it got nothing, since all
// of it is gone or waits with another job, it has passed no job.
func (b *Book) finish(j, last *job) {
	if len(j.needs) == 0 && len(j.held) == 0 {
		j.aside = false
		got := j.got
		if b.done(j.Name); got {
			b.placed(last)
		} else {
			delete(b.missed, last.Name) // nor does any job wait for it
		}
	}
}

// request notes what is asked for. The shares change only if that could make a difference: a queue
// that asks for more than comes to it may ask for still more.
func (b *Book) request(q *queue, u Usage, n int64) {
	// A closed queue asks for what it has; one that cannot use all may use more than comes to it.
	b.stale = b.stale || b.closed(q) || !q.idle.Zero()
	if !u.placed() && u.Demand == Hopeless {
		return
	}
	b.ask(q, u, u.Amount, n)
	for _, amount := range u.Or {
		b.ask(q, u, amount, n)
	}
}

func (b *Book) ask(q *queue, u Usage, amount Vector, n int64) {
	if !u.placed() && u.Demand == Idle {
		q.idle.Add(amount, n)
		b.stale = true
	}
	comes := b.shares[u.Queue].Fair
	for name, more := range amount {
		before := q.requested[name]
		q.requested.Add(Vector{name: more}, n)
		b.stale = b.stale || min(before, q.requested[name]) <= comes[name]
	}
}
