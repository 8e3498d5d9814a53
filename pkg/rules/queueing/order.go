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

func (b *Book) compareJobs(i, j *job) int {
	for _, policy := range b.policies.JobOrder {
		order := 0
		switch policy {
		case config.PolicyPriority: // high before low
			order = cmp.Compare(j.Priority, i.Priority)
		case config.PolicyGang: // jobs whose minimum does not run come first
			order = cmp.Compare(count(i.Ready), count(j.Ready))
		case config.PolicyDRF: // the job with the smaller dominant share comes first
			order = cmp.Compare(b.JobShare(i.Gang, nil), b.JobShare(j.Gang, nil))
		}
		if order != 0 {
			return order
		}
	}
	return compareAge(i, j)
}

// compare orders jobs that may wait in different queues: 1. those that have begun; 2. the order of their queues, see
// compareQueues; 3. the order of jobs in a queue.
func (b *Book) compare(i, j *job) int {
	p, q := b.queues[i.Queue], b.queues[j.Queue]
	order := cmp.Compare(count(j.Begun), count(i.Begun))
	if i.Queue != j.Queue && p != nil && q != nil && p.noWay == "" && q.noWay == "" {
		order = cmp.Or(order, b.compareQueues(p, q))
	}
	return cmp.Or(order, b.compareJobs(i, j))
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

// Line returns the jobs of a queue that wait for their turn, have it, or did not fit, in the order in which the queue
// serves them: jobs that have begun first, and then as its policies say. Limits are ignored: a job that is over one is
// passed by those behind it. For a job that did not fit, the order does not know what its gang has running. It costs a
// look at all jobs.
func (b *Book) Line(queue string) []Job {
	var jobs []*job
	for _, j := range b.timed {
		if j.phase != Outside && j.Queue == queue {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, b.compare)
	line := make([]Job, len(jobs))
	for i, j := range jobs {
		line[i] = j.Job
	}
	return line
}

// compareFresh compares jobs whose gangs have nothing running, by what does not change while they
// wait.
func (b *Book) compareFresh(i, j *job) int {
	if slices.Contains(b.policies.JobOrder, config.PolicyPriority) {
		return cmp.Or(cmp.Compare(j.Priority, i.Priority), compareAge(i, j))
	}
	return compareAge(i, j)
}

func compareAge(i, j *job) int {
	return cmp.Or(i.Created.Compare(j.Created), cmp.Compare(i.arrival, j.arrival), cmp.Compare(i.Name, j.Name))
}

// JobShare returns the dominant share of a gang, from 0 to 1, if it had this much more running.
func (b *Book) JobShare(gang string, more Vector) float64 {
	if len(more) == 0 {
		return share.Dominant(b.running[gang], b.total)
	}
	sum := Vector{}
	sum.Add(b.running[gang], 1)
	sum.Add(more, 1)
	return share.Dominant(sum, b.total)
}
