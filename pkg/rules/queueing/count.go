package queueing

import (
	"maps"
	"slices"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Count records what a pod asks for, in place of what was counted under the name.
func (b *Book) Count(name string, u Usage) {
	before, known := b.usages[name]
	b.queue(u.Queue)
	u.refused, u.hopeless = before.refused && !u.Runs, before.hopeless && !u.Runs
	b.usages[name] = u
	b.countHeld(before, -1)
	b.assign(name, before.Job, u.Job)
	if known {
		b.count(name, before, -1)
	}
	b.count(name, u, 1)
	b.countHeld(u, 1)
	b.retryFailed = b.retryFailed || before.placed() && before.Queue != u.Queue
	b.reclaimable = b.reclaimable || before.Promised && u.Runs
	moved := known && before.Queue != u.Queue && before.Job == u.Job && !before.placed() && !u.placed()
	if j := b.jobs[u.Job]; moved && j != nil && j.Pod == name {
		switch {
		case j.phase == Failed:
			j.Queue, j.deserved = u.Queue, Vector{} // what its queue deserves may help it; nothing else brings it to the gate
		case j.phase == Admitted && !j.Together:
			b.done(j.Name) // it was let in by the limits of the other queue
		}
	}
	if j := b.inTurn(u.Job, name); j != nil {
		j.turn.got = j.turn.got || u.placed()
	} else if was := known && before.Job == u.Job && before.placed(); u.Runs && !was && b.active(u.Job) == nil {
		delete(b.missed, u.Job) // it was placed without its turn
	}
	b.settle(before.Job)
	b.settle(u.Job)
}

// countHeld notes that one more is held for a job, or with n = -1 one fewer.
func (b *Book) countHeld(u Usage, n int) {
	j := b.jobs[u.Job]
	if j == nil || !u.Held || u.Runs {
		return
	}
	if b.holding[j] += n; b.holding[j] <= 0 {
		delete(b.holding, j)
	}
}

// Uncount ends what was counted under a name, if anything was. The end of a pod is reported to [Book.PodEnded].
func (b *Book) Uncount(name string) {
	if u, ok := b.usages[name]; ok {
		delete(b.usages, name)
		b.countHeld(u, -1)
		b.assign(name, u.Job, "")
		b.count(name, u, -1)
		b.settle(u.Job)
	}
}

// count adds n times a usage to what is counted.
func (b *Book) count(name string, u Usage, n int64) {
	q := b.queues[u.Queue]
	b.request(q, u, n)
	if j := b.inTurn(u.Job, name); j != nil {
		b.countTurn(j, name, u, n)
	} else if j := b.jobs[u.Job]; j != nil && j.phase == Failed {
		b.wishes.touch(j)
	}
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
	resource.AddTo(q.byPriority, u.Priority, u.Amount, n)
	b.run(u.Queue, u.Amount, n)
	if u.Gang == "" {
		return
	}
	before := b.running[u.Gang] != nil
	resource.AddTo(b.running, u.Gang, u.Amount, n)
	if now := b.running[u.Gang] != nil; now != before {
		for _, j := range slices.Collect(maps.Keys(b.members[u.Gang])) {
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
	if b.promised[u.Job].Add(u.Queue, u.Amount, n); len(b.promised[u.Job]) == 0 {
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

// inTurn returns the job that a pod will be placed with in its turn; nil if it is not.
func (b *Book) inTurn(job, pod string) *job {
	j := b.jobs[job]
	if j == nil || j.phase != Admitted {
		return nil
	}
	if _, is := j.turn.pods[pod]; !is {
		return nil
	}
	return j
}

// countTurn adds n times what a pod of a job asked for when its turn began: nothing once it has its place.
func (b *Book) countTurn(j *job, pod string, now Usage, n int64) {
	switch asked := j.turn.pods[pod]; {
	case now.Runs:
	case now.Held:
		j.turn.held += int(n)
	default:
		j.turn.left += int(n)
		j.turn.lacks.Add(asked.Queue, asked.Option(j.at), n)
		b.charge(j, asked.Queue, asked.Option(j.at), n)
	}
}

// settle ends the turn of a job of which no pod still waits for its place, or has one held. If none has got its
// place, since all are gone or wait with another job, it has passed no job.
func (b *Book) settle(name string) {
	j := b.jobs[name]
	if j == nil || j.phase != Admitted || j.turn.left+j.turn.held > 0 {
		return
	}
	j.waitsElsewhere = false
	last := *j
	if !last.turn.got {
		b.done(name)
		delete(b.missed, name) // nor does any job wait for it
		return
	}
	j.limit = reported{}
	b.done(name)
	b.placed(&last)
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
	if u.Gang != "" {
		resource.AddTo(b.asked, u.Gang, amount, n)
		b.stale = b.stale || b.evicted[u.Gang] != nil
	}
	comes := b.shares[u.Queue].Fair
	for name, more := range amount {
		before := q.requested[name]
		q.requested[name] += more * n
		b.stale = b.stale || min(before, q.requested[name])-q.inVain[name] <= comes[name]
	}
}
