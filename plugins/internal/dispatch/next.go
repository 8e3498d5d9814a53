package dispatch

import "strings"

// Next admits the job whose turn it is; false if there is none. It costs a look at each
// queue in which somebody waits.
//
// Queues are ordered by the policies that answer QueueOrder, top down through the tree, and
// then by name; jobs of a queue by those that answer JobOrder and TaskOrder, and then by age,
// old first, and name.
func (b *Book) Next() (Job, bool) {
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
	b.unlist(best)
	_, best.crowded = b.exceeded(best)
	b.crowded += count(best.crowded)
	best.admitted = true
	b.turns++
	b.charge(best, 1)
	return best.Job, true
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
		if j == nil || len(j.Need) > 1 && b.isShut(j) || first != nil && b.compareJobs(j, first) > 0 {
			continue
		}
		switch bound, over := b.insuperable(j); {
		case over && bound.Reason == Capability:
			blocked = append(blocked, &missed{Job: j.Job, ceiling: bound.Queue})
		case !over && b.waitsFor(j) == "":
			first = j
		}
	}
	return first, blocked
}
