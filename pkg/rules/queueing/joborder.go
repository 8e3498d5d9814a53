package queueing

import (
	"cmp"
	"slices"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/util/bools"
)

// compareJobs orders jobs of one queue by the policies, then by age.
func (b *Book) compareJobs(i, j *job) int {
	for _, policy := range b.policies.JobOrder {
		order := 0
		switch policy {
		case config.PolicyPriority: // high before low
			order = cmp.Compare(j.Priority, i.Priority)
		case config.PolicyGang: // jobs whose minimum does not run come first
			order = bools.Compare(i.Ready, j.Ready)
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
	order := bools.Compare(j.Begun, i.Begun)
	if i.Queue != j.Queue && p != nil && q != nil && p.noWay == "" && q.noWay == "" {
		order = cmp.Or(order, b.compareQueues(p, q))
	}
	return cmp.Or(order, b.compareJobs(i, j))
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
