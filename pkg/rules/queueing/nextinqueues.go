package queueing

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/pkg/util/heaps"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// next returns the job that queues offer for the next turn; nil if there is none. It costs a look at each queue with
// jobs that wait.
//
// Queues are ordered by the policies that answer QueueOrder, top down through the tree; then those come first that stay
// inside their share with their job; then by name. Jobs of a queue are ordered by the policies that answer JobOrder and
// TaskOrder, and then by age, old first, arrival and name. A job with which its queue would get more than its share
// stands back behind jobs of queues that rank alike and stay inside theirs, until none of these has a turn to come.
//
// Candidates come before all others where their queue lets no job in: they are told so at the gate, and kept there.
func (b *Book) next(from selection) *job {
	if j := b.mostUrgent(from); j != nil {
		return j
	}
	if j := b.firstInShut(from); j != nil {
		return j
	}
	var best *job
	var of *queue
	for _, q := range b.queues {
		if len(q.waiting) > 0 && b.serves(q) && (of == nil || b.compareQueues(q, of) <= 0) {
			if first, _ := b.first(q, from); first != nil {
				best, of = first, q
			}
		}
	}
	if best == nil || best.candidate {
		return best
	}
	return b.insteadOf(best, of, from)
}

// selection is the jobs from which next chooses: candidates, jobs that have begun and wait, and the others that wait.
type selection struct {
	candidates, begun, others bool
	now                       time.Time
}

// has reports whether a job that waits, or is a candidate, is among those selected.
func (s selection) has(j *job) bool {
	switch {
	case j.candidate:
		return s.candidates
	case j.Begun:
		return s.begun
	default:
		return s.others
	}
}

// firstInShut returns the first candidate in a queue that lets no job in; nil for none.
func (b *Book) firstInShut(from selection) (first *job) {
	if !from.candidates || len(b.candidates) == 0 {
		return nil
	}
	for _, q := range b.queues {
		l := q.waiting[kind{candidate: true}]
		if l == nil || b.serves(q) {
			continue
		}
		if j := l.first(b); first == nil || b.compareJobs(j, first) < 0 {
			first = j
		}
	}
	return first
}

// serves reports whether a queue may let jobs in.
func (b *Book) serves(q *queue) bool { return q.noWay == "" && !b.closed(q) }

// late returns the job that is overdue the longest: no limit holds it back, and it has not been looked at for the time
// that turns.OverdueAt allows. Of several the first in order; nil if none is overdue. It costs a look at each job that
// waits.
func (b *Book) late(now time.Time) (longest *job) {
	since := func(j *job) time.Time {
		if j.failed.IsZero() {
			return j.since
		}
		return j.failed
	}
	for _, q := range b.queues {
		if !b.serves(q) {
			continue
		}
		for kind, l := range q.waiting {
			head := l.first(b)
			if kind.hopeless || kind.candidate || head == nil {
				continue
			}
			_, over, why := b.blockedBy(head)
			if l.setLimited(over, now); over || why != "" {
				continue
			}
			consider := func(j *job) {
				if !b.shutElsewhere(j) && !now.Before(turns.OverdueAt(times.Later(since(j), l.free), !j.failed.IsZero())) &&
					(longest == nil || cmp.Or(since(j).Compare(since(longest)), b.compare(j, longest)) < 0) {
					longest = j
				}
			}
			for _, j := range l.fresh.Items {
				consider(j)
			}
			for _, j := range l.started {
				consider(j)
			}
		}
	}
	if longest != nil {
		if _, over, why := b.blockedBy(longest); over || why != "" {
			return nil // it waits behind another one, unlike those before it
		}
	}
	return longest
}

// insteadOf returns the job that has its turn instead of the first job of the first queue, if that job would lift the
// queue, or one above it, over what it deserves: the first job with which another queue of the same rank stays inside
// its share. It is the given job if there is none. It costs another look at each queue with jobs that wait.
func (b *Book) insteadOf(first *job, of *queue, from selection) *job {
	if !slices.ContainsFunc(of.path, func(at string) bool { return b.overshoots(first, at) }) {
		return first
	}
	best := first
	var bestOf *queue
	for _, q := range b.queues {
		if !b.serves(q) || len(q.waiting) == 0 || bestOf != nil && b.compareQueues(q, bestOf) > 0 {
			continue
		}
		var mine, its string
		alike := share.Compare(of.path, q.path, func(i, j string) int { mine, its = i, j; return b.rankSiblings(i, j) }) == 0
		if q == of || !alike || !b.overshoots(first, mine) {
			continue
		}
		if j, _ := b.first(q, from); j != nil && !b.overshoots(j, its) {
			best, bestOf = j, q
		}
	}
	return best
}

// mostUrgent returns the first of the jobs that have begun; nil for none.
func (b *Book) mostUrgent(from selection) *job {
	var first *job
	for j := range b.urgent {
		if from.has(j) && (first == nil || b.compareJobs(j, first) < 0) {
			first = j
		}
	}
	return first
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// first returns the job of a queue whose turn it is, nil if there is none, and the jobs before it that a ceiling
// keeps from their turn.
func (b *Book) first(q *queue, from selection) (*job, []*missed) {
	var first *job
	var blocked []*missed
	for kind, l := range q.waiting {
		if kind.hopeless {
			continue
		}
		j := l.first(b)
		if j == nil || !from.has(j) || first != nil && b.compareJobs(j, first) > 0 {
			continue
		}
		if j.candidate {
			first = j
			continue
		}
		if b.shutElsewhere(j) {
			continue
		}
		bound, over, why := b.blockedBy(j)
		l.setLimited(over, from.now)
		switch {
		case over && bound.Reason == Capability:
			blocked = append(blocked, &missed{Job: j.Job, ceiling: bound.Queue})
		case !over && why == "":
			first = j
		}
	}
	return first, blocked
}

// blockedBy makes a job take the first of its options with which it is above no limit; if there is none, the first
// for which others can make way. It returns what keeps the job from its turn, with its first option: a limit, or
// else, in words, the job that it waits for.
func (b *Book) blockedBy(j *job) (bound Bound, over bool, why string) {
	if len(j.Options) > 1 {
		for at := range j.Options {
			if j.take(at); !b.exceedsBound(j) && b.waitsFor(j) == "" {
				return Bound{}, false, ""
			}
		}
		for at := range j.Options {
			j.take(at)
			if _, over := b.hardLimit(j); !over && b.waitsFor(j) == "" {
				return Bound{}, false, ""
			}
		}
		j.take(0)
	}
	if bound, over = b.hardLimit(j); over {
		return bound, true, ""
	}
	return Bound{}, false, b.waitsFor(j)
}

// list is the jobs of a queue that wait and ask for the same: what keeps the first of them from its turn keeps all.
type list struct {
	// fresh are the jobs whose gangs have nothing running, in an order that does not change.
	fresh heaps.Heap[*job]
	// started are the other jobs, which are compared again each time.
	started map[string]*job
	// limited: a limit kept the jobs from their turn when that was last judged. free is when the last such limit was first
	// seen to be gone; zero if there has been none.
	limited bool
	free    time.Time
}

// setLimited records whether a limit keeps the jobs from their turn now.
func (l *list) setLimited(limited bool, now time.Time) {
	if l.limited && !limited {
		l.free = now
	}
	l.limited = limited
}

// first returns the job whose turn it is; nil if there is none.
func (l *list) first(b *Book) *job {
	var best *job
	if l.fresh.Len() > 0 {
		best = l.fresh.Items[0]
	}
	for _, j := range l.started {
		if best == nil || b.compareJobs(j, best) < 0 {
			best = j
		}
	}
	return best
}

// kind is what the jobs of a list have in common.
type kind struct {
	// candidate: they are candidates.
	candidate bool
	// asks stands for what they ask for, and for whether others may have to make way for it; empty for candidates.
	asks string
	// hopeless: each alone exceeds a ceiling.
	hopeless bool
}

// kindOf returns the kind of a job. A job that has been promised some of what it asks for is a kind of its own.
func (b *Book) kindOf(j *job) kind {
	if j.candidate {
		return kind{candidate: true}
	}
	promised := ""
	if b.promised[j.Name] != nil {
		promised = j.Name
	}
	return kind{asks: fmt.Sprint(promised, j.patient(), j.Ready, j.yieldSuspendedUntil.IsZero(), j.Options, j.Parts),
		hopeless: b.tooLarge(j)}
}

// list makes a job wait. A hopeless one never has its turn as things are, keeps no other job waiting, and there is no
// share for it.
func (b *Book) list(j *job) {
	if j.Begun {
		b.urgent[j] = true
		return
	}
	if !j.candidate {
		j.take(0)
	}
	if j.kind = b.kindOf(j); j.kind.hopeless {
		b.askInVain(j, 1)
	}
	q := b.queues[j.Queue]
	l := q.waiting[j.kind]
	if l == nil {
		l = &list{started: map[string]*job{},
			fresh: heaps.Heap[*job]{Compare: b.compareFresh, Index: func(j *job) *int { return &j.index }}}
		q.waiting[j.kind] = l
	}
	if j.Gang != "" {
		nested.Set(b.members, j.Gang, j, true)
	}
	if j.Ready || b.running[j.Gang] != nil {
		l.started[j.Name] = j
		j.index = -1
		return
	}
	heap.Push(&l.fresh, j)
}

// askInVain adds n times what a job that is too large asks for.
func (b *Book) askInVain(j *job, n int64) {
	b.stale = true
	for _, option := range j.Options {
		for queue, amount := range option {
			b.queues[queue].inVain.Add(amount, n)
		}
	}
}

func (b *Book) unlist(j *job) {
	if j.Begun {
		delete(b.urgent, j)
		return
	}
	if j.kind.hopeless {
		b.askInVain(j, -1)
	}
	waiting := b.queues[j.Queue].waiting
	l := waiting[j.kind]
	nested.Delete(b.members, j.Gang, j)
	if j.index < 0 {
		delete(l.started, j.Name)
	} else {
		heap.Remove(&l.fresh, j.index)
	}
	if l.fresh.Len()+len(l.started) == 0 {
		delete(waiting, j.kind)
	}
}
