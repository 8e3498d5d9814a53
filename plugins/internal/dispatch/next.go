package dispatch

import "strings"

// next admits the job whose turn it is; false if there is none. It costs a look at each
// queue in which somebody waits.
//
// Queues are ordered by the policies that answer QueueOrder, top down through the tree, and
// then by name; jobs of a queue by those that answer JobOrder and TaskOrder, and then by age,
// old first, and name.
func (b *Book) next() (Job, bool) {
	if j := b.mostUrgent(); j != nil {
		b.admit(j)
		return j.offered(), true
	}
	var best *job
	var of *queue
	for _, q := range b.queues {
		if q.err != nil || q.spec == nil || b.closed(q) || of != nil && b.compareQueues(q, of) > 0 {
			continue
		}
		if first, _ := b.first(q); first != nil {
			best, of = first, q
		}
	}
	if best == nil {
		return Job{}, false
	}
	b.pass(best)
	_, best.crowded = b.exceeded(best)
	b.crowded += count(best.crowded)
	b.admit(best)
	return best.offered(), true
}

// Urgent reports whether there are jobs that have begun, and wait to go on.
func (b *Book) Urgent() bool { return len(b.urgent) > 0 }

// mostUrgent is the first of the jobs that have begun; nil for none.
func (b *Book) mostUrgent() *job {
	var first *job
	for _, j := range b.urgent {
		if first == nil || b.compareJobs(j, first) < 0 {
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

// first is the job of a queue whose turn it is, nil if there is none, and those before it
// that a ceiling keeps from theirs.
func (b *Book) first(q *queue) (*job, []*missed) {
	var first *job
	var blocked []*missed
	for kind, l := range q.waiting {
		if strings.HasPrefix(kind, hopeless) {
			continue
		}
		j := l.first(b)
		if j == nil || len(j.in) > 1 && b.isShut(j) || first != nil && b.compareJobs(j, first) > 0 {
			continue
		}
		switch bound, over, why := b.judge(j); {
		case over && bound.Reason == Capability:
			blocked = append(blocked, &missed{Job: j.offered(), ceiling: bound.Queue})
		case !over && why == "":
			first = j
		}
	}
	return first, blocked
}

// judge has a job take the first of its options with which it is above no limit; if there is
// none, the first for which others can make way. It returns what keeps it from its turn, with
// its first option: a limit, or else for whom it waits.
func (b *Book) judge(j *job) (bound Bound, over bool, why string) {
	if len(j.options) > 1 {
		for at := range j.options {
			if j.take(at); !b.over(j) && b.waitsFor(j) == "" {
				return Bound{}, false, ""
			}
		}
		for at := range j.options {
			j.take(at)
			if _, over := b.insuperable(j); !over && b.waitsFor(j) == "" {
				return Bound{}, false, ""
			}
		}
		j.take(0)
	}
	if bound, over = b.insuperable(j); over {
		return bound, true, ""
	}
	return Bound{}, false, b.waitsFor(j)
}
