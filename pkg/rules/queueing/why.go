package queueing

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Reason is the kind of thing that a job waits for.
type Reason string

// Reasons.
const (
	// NotFound: there is no such queue.
	NotFound Reason = "QueueNotFound"
	// ParentMissing: the queue's parents do not lead to the top.
	ParentMissing Reason = "QueueWithoutParent"
	// Invalid: the queue, or one above it, states an amount that cannot be.
	Invalid Reason = "QueueInvalid"
	// Closed: the queue admits nothing.
	Closed Reason = "QueueClosed"
	// Overused: the queue has its share. Shares grow with the nodes there are, so more of them would help, and
	// autoscalers look for this reason.
	Overused Reason = v1.PodReasonUnschedulable
	// Capability: the queue, or one above it, would exceed its ceiling.
	Capability Reason = "QueueCapability"
	// Behind: it would, together with earlier jobs that wait for nodes. More nodes do not help, since those jobs would
	// get them first; room that is there now does.
	Behind Reason = "QueueBehindOthers"
	// Passed: a job that comes first does not fit, and was passed often enough.
	Passed Reason = "QueuePassed"
	// Turn: other jobs come first.
	Turn Reason = "QueueTurn"
	// Unread: queues and pods have not been read.
	Unread Reason = "QueuesNotRead"
)

// Shut reports whether the queue lets no job in until a user changes it.
func (r Reason) Shut() bool {
	return r == NotFound || r == ParentMissing || r == Invalid || r == Closed
}

// RoomHelps reports whether a job that waits for a reason would start if there was more room by now.
func (r Reason) RoomHelps() bool { return r == Overused || r == Behind }

// IsLimit reports whether a reason says that a queue lets a job in for no nodes, however many there are.
func IsLimit(reason string) bool {
	r := Reason(reason)
	return r.Shut() || r == Capability || r == Behind
}

// Wait is why a job waits, in words for users. The zero value is that nothing keeps it.
type Wait struct {
	Reason  Reason
	Message string
}

// Why returns what a job waits for now; nothing if it does not wait. It costs a look at its queues and at the jobs that
// come before it. With together it also knows of ceilings that the job would exceed together with other jobs, which may
// cost a look at each job.
func (b *Book) Why(name string, together bool) Wait {
	j := b.jobs[name]
	if j == nil || j.phase != Waiting {
		return Wait{}
	}
	if shut := b.Shut(j.queues()...); shut.Reason != "" {
		return shut
	}
	switch bound, over, why := b.blockedBy(j); {
	case over:
		if bound.Reason == Overused && together {
			if ceiling, over := b.beyond(name); over {
				bound = ceiling // which more nodes do not change
			}
		}
		return Wait{bound.Code(), bound.String()}
	case why != "":
		return Wait{Passed, why}
	}
	return Wait{Turn, fmt.Sprintf("waiting for its turn in queue %q", j.Queue)}
}

// limitOf returns why a job would not be admitted to more nodes either: one of its queues lets no job in, or it is
// beyond a ceiling, as [Book.beyond] finds, and at the cost of that. The words are without what changes all the time.
func (b *Book) limitOf(j *job) Wait {
	queues := slices.Sorted(maps.Keys(b.missing(j)))
	if shut := b.Shut(append(queues, j.Queue)...); shut.Reason != "" {
		return shut
	}
	if bound, beyond := b.beyond(j.Name); beyond {
		return Wait{bound.Code(), bound.Brief()}
	}
	return Wait{}
}

// Shut returns which of some queues lets no job in; nothing for none.
func (b *Book) Shut(queues ...string) Wait {
	for _, name := range queues {
		switch q := b.queues[name]; {
		case q == nil || q.spec == nil:
			return Wait{NotFound, textNotFound(name)}
		case q.noWay != "":
			return Wait{ParentMissing, fmt.Sprintf("queue %q admits no jobs: %s", name, q.noWay)}
		case b.closed(q):
			shut := q.path[slices.IndexFunc(q.path, func(at string) bool { return b.queues[at].spec.shut() })]
			if fault := b.queues[shut].spec.Fault; fault != "" {
				return Wait{Invalid, fmt.Sprintf("queue %q admits no jobs: %s", shut, fault)}
			}
			return Wait{Closed, fmt.Sprintf("queue %q is closed", shut)}
		}
	}
	return Wait{}
}

func textNotFound(name string) string { return fmt.Sprintf("queue %q does not exist", name) }

// closed reports whether a queue, or one above it, admits nothing.
func (b *Book) closed(q *queue) bool {
	return slices.ContainsFunc(q.path, func(at string) bool {
		spec := b.queues[at].spec
		return spec != nil && spec.shut()
	})
}

// shutElsewhere reports whether any other queue than its own, in which a job asks for something, lets no job in.
func (b *Book) shutElsewhere(j *job) bool {
	for queue := range j.Options[j.at] {
		if q := b.queues[queue]; queue != j.Queue && !b.serves(q) {
			return true
		}
	}
	return false
}
