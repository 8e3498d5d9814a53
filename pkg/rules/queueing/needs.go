package queueing

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Needs are amounts by queue: pods that start together may be in several.
type Needs map[string]Vector

// Add adds n times an amount to that of a queue, and leaves out a queue in which nothing is asked for.
func (n Needs) Add(queue string, amount Vector, times int64) { resource.AddTo(n, queue, amount, times) }

// Options returns what a job of some usages asks for, and may ask for instead, at least one: with
// the n-th, each usage takes its n-th option, or its last.
func Options(usages []Usage) []Needs {
	most := 0
	for _, u := range usages {
		most = max(most, len(u.Or))
	}
	options := make([]Needs, most+1)
	for at := range options {
		options[at] = Needs{}
		for _, u := range usages {
			options[at].Add(u.Queue, u.Option(at), 1)
		}
	}
	return options
}

// Total returns the sum over all queues.
func (n Needs) Total() Vector {
	if len(n) == 1 {
		for _, amount := range n {
			return amount
		}
	}
	sum := Vector{}
	for _, amount := range n {
		sum.Add(amount, 1)
	}
	return sum
}

// names returns the resources of which something is asked for, in order.
func (n Needs) names() []v1.ResourceName {
	var list []v1.ResourceName
	for _, amount := range n {
		for name := range amount {
			if amount[name] > 0 && !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	slices.Sort(list)
	return list
}

// queues returns the queues in which a job asks for something, its own first.
func (j *job) queues() []string {
	list := []string{j.Queue}
	for _, queue := range slices.Sorted(maps.Keys(j.Options[j.at])) {
		if queue != j.Queue {
			list = append(list, queue)
		}
	}
	return list
}

// need returns what a job asks for; in its turn, what it still lacks.
func (j *job) need() Needs {
	if j.phase == Admitted {
		return j.turn.lacks
	}
	return j.Options[j.at]
}

// part returns what has to be within limits for the job to be placed, or a part of it.
func (j *job) part() Needs {
	if len(j.Parts) > 0 {
		return j.Parts[min(j.at, len(j.Parts)-1)]
	}
	return j.need()
}

// asOneUnit returns the job without parts, so that pods are evicted only if all of it fits.
func (j *job) asOneUnit() *job {
	whole := *j
	whole.Parts = nil
	return &whole
}

// with returns a job as it is with a choice, of which no part can be placed by itself.
func (j *job) with(choice Choice) *job {
	whole := j.asOneUnit()
	whole.at, whole.needs, whole.turn.lacks = choice.At, choice.Need.names(), choice.Need
	return whole
}

// take makes a job ask for one of its options. It charges nothing: see [Book.retake].
func (j *job) take(at int) {
	if j.at != at || j.needs == nil {
		j.at = at
		j.needs = j.Options[at].names()
	}
}

// at returns how much of a resource is asked for in a queue and those below it.
func (b *Book) at(n Needs, level string, name v1.ResourceName) int64 {
	var sum int64
	for queue, amount := range n {
		if slices.Contains(b.Path(queue), level) {
			sum += amount[name]
		}
	}
	return sum
}

// charge adds n times an amount that a job asks for in its turn to what its queues use.
func (b *Book) charge(j *job, queue string, amount Vector, n int64) {
	b.wishes.touch(j)
	b.queues[queue].mine.Add(amount, n)
	for _, q := range b.upwards(queue) {
		q.turns.Add(amount, n)
		q.used.Add(amount, n)
	}
}

// chargeAll adds n times all that a job still lacks in its turn.
func (b *Book) chargeAll(j *job, n int64) {
	for queue, amount := range j.turn.lacks {
		b.charge(j, queue, amount, n)
	}
}

// retake makes a job that has its turn ask for one of its options.
func (b *Book) retake(j *job, at int) {
	b.chargeAll(j, -1)
	j.take(at)
	j.turn.lacks, j.turn.left, j.turn.held = Needs{}, 0, 0
	for pod := range j.turn.pods {
		if u := b.usages[pod]; u.Job == j.Name {
			b.countTurn(j, pod, u, 1)
		}
	}
}
