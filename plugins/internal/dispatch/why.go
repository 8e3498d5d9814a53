package dispatch

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/plugins/internal/share"
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
)

// Why tells what a job waits for, in words for users; empty if it does not wait.
func (b *Book) Why(name string) (Reason, string) {
	j := b.jobs[name]
	if j == nil || j.admitted {
		return "", ""
	}
	q := b.queues[j.Queue]
	switch {
	case q.spec == nil:
		return NotFound, fmt.Sprintf("queue %q does not exist", j.Queue)
	case q.err != nil:
		return Loose, fmt.Sprintf("queue %q cannot serve: %v", j.Queue, q.err)
	case q.spec.Closed:
		return Closed, fmt.Sprintf("queue %q is closed", j.Queue)
	}
	if reason, why := b.hindrance(b.Shares(), j); why != "" {
		return reason, why
	}
	return Turn, fmt.Sprintf("it is not yet its turn in queue %q", j.Queue)
}

// hindrance tells what keeps a job from its turn; empty if nothing does.
func (b *Book) hindrance(shares map[string]share.Share, j *job) (Reason, string) {
	if reason, why := b.limits(shares, j); why != "" {
		return reason, why
	}
	if why := b.waitsFor(j); why != "" {
		return Passed, why
	}
	return "", ""
}

// limits tells which limit of its queue keeps a job from its turn; empty if none does.
func (b *Book) limits(shares map[string]share.Share, j *job) (Reason, string) {
	path := b.queues[j.Queue].path
	// Of those above it the share does not matter: where a sibling has more than its own,
	// the queue may take that back.
	used := b.queues[j.Queue].used
	for _, name := range slices.Sorted(maps.Keys(j.Need)) {
		if fair := shares[j.Queue].Fair[name]; j.Need[name] > 0 && used[name] >= fair {
			return Overused, fmt.Sprintf("queue %q is overused: %s used, its share is %s", j.Queue, only(name, used[name]), only(name, fair))
		}
	}
	for _, at := range path {
		if why, beyond := b.exceeds(at, b.queues[at].used, j.Need); beyond {
			return Capability, why
		}
	}
	return "", ""
}

func (b *Book) hindered(shares map[string]share.Share, j *job) bool {
	_, why := b.hindrance(shares, j)
	return why != ""
}

// Exceeds tells which ceiling a job that is not admitted would exceed; empty if none.
func (b *Book) Exceeds(j Job) string {
	for _, at := range b.queue(j.Queue).path {
		if why, beyond := b.exceeds(at, b.queues[at].used, j.Need); beyond {
			return why
		}
	}
	return ""
}

// beyond tells whether a job is beyond a ceiling on its path if so much is used there.
func (b *Book) beyond(j *job, used Vector) (why string, beyond bool) {
	for _, at := range b.queues[j.Queue].path {
		if why, beyond = b.exceeds(at, used, j.Need); beyond {
			return why, true
		}
	}
	return "", false
}

func (b *Book) exceeds(name string, used, need Vector) (why string, beyond bool) {
	ceilings := b.queues[name].spec.Capability
	for _, resource := range slices.Sorted(maps.Keys(need)) {
		if ceiling, ok := ceilings[resource]; ok && need[resource] > 0 && used[resource]+need[resource] > ceiling {
			return fmt.Sprintf("queue %q would exceed its capability of %s: %s used, %s asked for",
				name, only(resource, ceiling), only(resource, used[resource]), only(resource, need[resource])), true
		}
	}
	return "", false
}

// only words an amount of one resource, 0 too.
func only(name v1.ResourceName, amount int64) string {
	if amount == 0 {
		return "0 " + string(name)
	}
	return Vector{name: amount}.String()
}
