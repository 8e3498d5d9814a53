package queueing

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
)

// Policies are the policies by which a book decides. The zero value has none.
type Policies struct {
	// QueueOrder and JobOrder are asked one after the other: the first that distinguishes two
	// decides.
	QueueOrder, JobOrder []config.PolicyName
	// Overused are the policies that limit queues to their share.
	Overused []config.PolicyName
	// Rules say what queues deserve.
	Rules share.Rules
	// Preempt is what makes way inside a queue, as far as that is known here. Reclaim: queues make
	// way for each other.
	Preempt VictimKind
	Reclaim bool
}

// VictimKind is what may make way for a job in its queue.
type VictimKind int

// Ways.
const (
	Nothing  VictimKind = iota
	Lower               // what has a lower priority
	Anything            // whatever its priority
)

// Configure sets the limits, by which policies queues and jobs are ordered, and what queues deserve. It is
// for books in which nothing waits yet.
func (b *Book) Configure(limits Limits, policies Policies) {
	b.limits, b.policies = limits, policies
	b.relink()
}

// deserves returns what a queue is entitled to by its description, as far as that counts.
func (b *Book) deserves(spec *Queue) Vector {
	return b.policies.Rules.Entitled(b.total, spec.Deserved, spec.Guarantee)
}

// judges reports whether a policy that answers Overused is about a resource of a queue: what is
// stated is capacity's, and so is everything if there is no proportion; the rest is proportion's.
func (b *Book) judges(spec *Queue, name v1.ResourceName) bool {
	_, stated := spec.Deserved[name]
	policy := config.PolicyProportion
	if rules := b.policies.Rules; rules.Stated && (stated || !rules.Weighted) {
		policy = config.PolicyCapacity
	}
	return slices.Contains(b.policies.Overused, policy)
}

// compareQueues orders queues top down: where their branches part, the policies decide between the
// two branches, and then their names.
func (b *Book) compareQueues(p, q *queue) int {
	return share.Compare(p.path, q.path, func(i, j string) int { return cmp.Or(b.rankSiblings(i, j), cmp.Compare(i, j)) })
}

// rankSiblings orders two siblings by the policies alone; 0 means that they rank alike.
func (b *Book) rankSiblings(i, j string) int {
	p, q := b.queues[i], b.queues[j]
	for _, policy := range b.policies.QueueOrder {
		order := 0
		switch policy {
		case config.PolicyPriority:
			order = cmp.Compare(q.spec.Priority, p.spec.Priority)
		case config.PolicyProportion:
			order = cmp.Compare(b.served(p), b.served(q))
		case config.PolicyCapacity:
			order = cmp.Compare(b.filled(i), b.filled(j))
		}
		if order != 0 {
			return order
		}
	}
	return 0
}

// served returns the dominant share of a queue and all below it, divided by its weight.
func (b *Book) served(q *queue) float64 {
	return share.Dominant(q.used, b.total) / float64(max(q.spec.Weight, 1))
}

// filled returns how much of what it deserves a queue uses with all below it: the largest fraction
// of a resource.
func (b *Book) filled(name string) float64 {
	deserved, most := b.Shares()[name].Deserved, 0.0
	for resource, amount := range b.queues[name].used {
		switch {
		case amount <= 0:
		case deserved[resource] <= 0:
			return math.Inf(1)
		default:
			most = max(most, float64(amount)/float64(deserved[resource]))
		}
	}
	return most
}

// CompareQueuePriorities orders two jobs by the priorities of their queues alone, where their branches part; 0 if these
// are alike, or do not count, or the jobs are not known. Unlike the shares of queues, they do not change with who is
// looked at: one of two jobs that wait for each other always comes first.
func (b *Book) CompareQueuePriorities(i, j string) int {
	first, second := b.jobs[i], b.jobs[j]
	if first == nil || second == nil || !slices.Contains(b.policies.QueueOrder, config.PolicyPriority) {
		return 0
	}
	p, q := b.queues[first.Queue], b.queues[second.Queue]
	if p == nil || q == nil || p.noWay != "" || q.noWay != "" {
		return 0
	}
	return share.Compare(p.path, q.path, func(one, other string) int {
		return cmp.Compare(b.queues[other].spec.Priority, b.queues[one].spec.Priority)
	})
}
