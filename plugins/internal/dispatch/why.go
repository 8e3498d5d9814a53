package dispatch

import (
	"fmt"
	"slices"
)

// Reason is the kind of thing that a job waits for.
type Reason string

// Reasons.
const (
	// NotFound: there is no such queue.
	NotFound Reason = "QueueNotFound"
	// Loose: the queue's parents do not lead to the top.
	Loose Reason = "QueueWithoutParent"
	// Closed: the queue admits nothing.
	Closed Reason = "QueueClosed"
	// Overused: the queue has its share. More capacity would help.
	Overused Reason = "QueueOverused"
	// Capability: the queue, or one above it, would exceed its ceiling.
	Capability Reason = "QueueCapability"
	// Passed: a job that comes first does not fit, and was passed often enough.
	Passed Reason = "QueuePassed"
	// Turn: others come first.
	Turn Reason = "QueueTurn"
	// Unread: queues and pods have not been read.
	Unread Reason = "QueuesNotRead"
)

// Why tells what a job waits for, in words for users; empty if it does not wait.
func (b *Book) Why(name string) (Reason, string) {
	j := b.jobs[name]
	if j == nil || j.phase != Waiting {
		return "", ""
	}
	if reason, why := b.shut(j); reason != "" {
		return reason, why
	}
	switch bound, over, why := b.judge(j); {
	case over:
		return bound.Reason, bound.String()
	case why != "":
		return Passed, why
	}
	return Turn, fmt.Sprintf("waiting for its turn in queue %q", j.Queue)
}

// shut tells which of a job's queues lets nobody in; an empty reason is none.
func (b *Book) shut(j *job) (Reason, string) {
	for _, name := range j.queues() {
		switch q := b.queues[name]; {
		case q == nil || q.spec == nil:
			return NotFound, fmt.Sprintf("queue %q does not exist", name)
		case q.err != nil:
			return Loose, fmt.Sprintf("queue %q cannot serve: %v", name, q.err)
		case b.closed(q):
			shut := slices.IndexFunc(q.path, func(at string) bool { return b.queues[at].spec.Closed })
			return Closed, fmt.Sprintf("queue %q is closed", q.path[shut])
		}
	}
	return "", ""
}

// closed reports whether a queue, or one above it, admits nothing.
func (b *Book) closed(q *queue) bool {
	return slices.ContainsFunc(q.path, func(at string) bool { spec := b.queues[at].spec; return spec != nil && spec.Closed })
}

// isShut reports whether any of a job's queues lets nobody in.
func (b *Book) isShut(j *job) bool {
	reason, _ := b.shut(j)
	return reason != ""
}
