package queueing

import (
	"fmt"
	"slices"
	"time"

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
	// Behind: it would, together with jobs that come before and wait for nodes, too. More nodes do not help, since those
	// jobs would get them first; room that is there now does.
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

// Why returns what a job waits for, in words for users; empty if it does not wait. It costs a look at its queues and at
// the jobs that come before it. With together it also knows of ceilings that the job would exceed together with other
// jobs, which may cost a look at each job.
func (b *Book) Why(name string, together bool) (Reason, string) {
	j := b.jobs[name]
	if j == nil || j.phase != Waiting {
		return "", ""
	}
	if reason, why := b.Shut(j.queues()...); reason != "" {
		return reason, why
	}
	switch bound, over, why := b.judge(j); {
	case over:
		if bound.Reason == Overused && together {
			if ceiling, over := b.beyond(name); over {
				bound = ceiling // which more nodes do not change
			}
		}
		return bound.Code(), bound.String()
	case why != "":
		return Passed, why
	}
	return Turn, fmt.Sprintf("waiting for its turn in queue %q", j.Queue)
}

// Shut returns which of some queues lets no job in, in words for users; an empty reason means none.
func (b *Book) Shut(queues ...string) (Reason, string) {
	for _, name := range queues {
		switch q := b.queues[name]; {
		case q == nil || q.spec == nil:
			return NotFound, textNotFound(name)
		case q.noWay != "":
			return ParentMissing, fmt.Sprintf("queue %q cannot serve: %s", name, q.noWay)
		case b.closed(q):
			shut := q.path[slices.IndexFunc(q.path, func(at string) bool { return b.queues[at].spec.shut() })]
			if fault := b.queues[shut].spec.Fault; fault != "" {
				return Invalid, fmt.Sprintf("queue %q cannot serve: %s", shut, fault)
			}
			return Closed, fmt.Sprintf("queue %q is closed", shut)
		}
	}
	return "", ""
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

const (
	// tellAfter is how long a job waits before its users are told why: most wait only for a moment.
	tellAfter = 2 * time.Second
	// tellAgain is how long it takes until they are told something else: the numbers may change all the time. If the job
	// waits for another reason, tellOther, and that has to be so for as long again: while jobs come and go that changes,
	// too.
	tellAgain = 30 * time.Second
	tellOther = 5 * time.Second
	// tellUnread is how long jobs wait until their users are told that the queues are not known
	// yet.
	tellUnread = 10 * time.Second
)

// unread is what users are told while it is not known whose turn it is.
const unread = "waiting for queues and pods to be read; see the scheduler's log"

// Report is what the users of a job are to be told.
type Report struct {
	// Pods are all that would be placed.
	Pods    []string
	Reason  Reason
	Message string
	// Failed: it did not fit. Message is what limits it now, and replaces the message written when it failed.
	Failed bool
}

// News lists what users have to be told that they were not told before.
type News struct {
	// Members are pods of gangs that get another reason. It counts as reported.
	Members []string
	// Again are pods in no gang that have to come again, and are reported as they fail: something keeps them from more
	// nodes now, and nothing did before, or the other way round.
	Again []string
	// Jobs are jobs in no gang of which [Book.Report] says something new.
	Jobs []string
}

// News looks for jobs whose users have to be told something else than before. Call it about once a second. It costs a
// look at all jobs that wait and, as [Book.blockedChanges] says, at those that did not fit.
func (b *Book) News(at Moment) News {
	news := b.blockedChanges(at)
	for name, j := range b.timed {
		if j.phase != Waiting || !j.told.renewed && at.Now.Before(j.told.lookedAt.Add(tellOther)) {
			continue
		}
		switch report, due := b.Report(name, at); {
		case due && j.Together:
			b.MarkReported(name, report, at)
			news.Members = append(news.Members, report.Pods...)
		case due:
			news.Jobs = append(news.Jobs, name)
		case j.told.reason != "" && j.told.reason != Unread:
			j.told.lookedAt = at.Now
		}
	}
	for _, names := range [][]string{news.Members, news.Again, news.Jobs} {
		slices.Sort(names)
	}
	return news
}

// Report returns what the users of a job are to be told now; false for nothing. For a gang that did not fit use
// [Book.Blocked].
func (b *Book) Report(name string, at Moment) (Report, bool) {
	j := b.jobs[name]
	switch {
	case j != nil && j.phase == Failed && !j.Together:
		return Report{Pods: []string{j.Pod}, Reason: j.blocked.reason, Message: j.blocked.words,
			Failed: true}, j.blocked.reason != ""
	case j == nil || j.phase != Waiting || !j.tried.IsZero(): // its pods' conditions say what was tried
		return Report{}, false
	}
	n := Report{Pods: j.Pods, Reason: Unread, Message: unread}
	waited, first := at.Now.Sub(j.since), j.told.reason == Unread || j.told.renewed
	switch {
	case !at.Synced: // a queue that seems not to be there may not have been read
		return n, waited >= tellUnread && j.told.reason != Unread
	case waited < tellAfter || !first && at.Now.Sub(j.told.at) < tellOther:
		return Report{}, false
	}
	n.Reason, n.Message = b.Why(name, true)
	if other := n.Reason != j.told.reason; !first && at.Now.Sub(j.told.at) < tellAgain &&
		(!other || n.Reason != j.told.other) {
		j.told.other = n.Reason
		return Report{}, false
	}
	if n.Message == j.told.message {
		j.told.at, j.told.renewed = at.Now, false // it is so still
		return Report{}, false
	}
	if n.Reason == Turn && !first {
		return Report{}, false // that others come first may be over in a moment
	}
	return n, true
}

// MarkReported records that the users of a job that waits were told something.
func (b *Book) MarkReported(name string, n Report, at Moment) {
	if j := b.jobs[name]; j != nil && j.phase == Waiting && !n.Failed {
		j.told.reason, j.told.message, j.told.at, j.told.renewed, j.told.other = n.Reason, n.Message, at.Now, false, ""
	}
}

// LastReported returns what the users of a pod's waiting job were told last; an empty reason for nothing.
func (b *Book) LastReported(pod string) (Reason, string) {
	if j := b.jobs[b.usages[pod].Job]; j != nil && j.phase == Waiting {
		return j.told.reason, j.told.message
	}
	return "", ""
}
