package queueing

import (
	"cmp"
	"slices"
)

// Line returns the jobs of a queue that wait for their turn, have it, or did not fit, in the order in which the queue
// serves them: jobs that have begun first, and then as its policies say. Limits are ignored: a job that is over one is
// passed by those behind it. For a job that did not fit, the order does not know what its gang has running. It costs a
// look at all jobs.
func (b *Book) Line(queue string) []string {
	var jobs []*job
	for _, j := range b.timed {
		if j.phase != Outside && j.Queue == queue {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(i, j *job) int { return cmp.Or(compareReady(!i.Begun, !j.Begun), b.compareJobs(i, j)) })
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.Name
	}
	return names
}

// Representative returns the pod that stands for a job at the gate; empty if the job is not known.
func (b *Book) Representative(name string) string {
	if j := b.jobs[name]; j != nil {
		return j.Pod
	}
	return ""
}
