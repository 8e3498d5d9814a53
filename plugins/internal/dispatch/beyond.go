package dispatch

import (
	"cmp"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// What does not fit asks for nodes, as far as the ceilings of its queues let it have them: several jobs that are each below a
// ceiling may be above it together, and nodes for all of them would idle.

// Beyond returns the first ceiling that a job would exceed if it was placed on new nodes, beside those that come before it and
// wait for nodes too: by priority, then age, then name. Jobs that are beyond a ceiling themselves ask for nothing. Where no ceiling
// is above the job it costs a look at its queues, otherwise as much as for all jobs.
func (b *Book) Beyond(name string) (Bound, bool) {
	if j := b.jobs[name]; j == nil || !b.limited(j) {
		return Bound{}, false
	}
	bound, over := b.allBeyond()[name]
	return bound, over
}

// allBeyond are the jobs that are beyond a ceiling. It looks at each job once, and at those that are tried for each.
func (b *Book) allBeyond() map[string]Bound {
	jobs := slices.SortedFunc(maps.Values(b.timed), comparePrecedence)
	var later []*job // they count as used while they are tried
	for _, j := range jobs {
		if j.phase == Admitted {
			later = append(later, j)
		}
	}
	beyond, asked := map[string]Bound{}, Needs{}
	for _, j := range jobs {
		if j.phase == Admitted {
			later = later[1:]
		}
		if !b.limited(j) {
			continue
		}
		bound, over := b.overCeiling(j, asked, later)
		switch {
		case over:
			beyond[j.Name] = bound
		case (j.phase == Failed || j.phase == Waiting) && b.serves(j):
			for queue, amount := range j.missing() {
				asked.Add(queue, amount)
			}
		}
	}
	return beyond
}

// missing is what a job asks for that is not placed.
func (j *job) missing() Needs {
	switch j.phase {
	case Failed:
		return j.lacked
	case Waiting, Admitted:
		return j.need()
	default:
		return nil
	}
}

// comparePrecedence orders jobs by: 1. priority, high first; 2. age; 3. name.
func comparePrecedence(i, j *job) int {
	return cmp.Or(cmp.Compare(j.Priority, i.Priority), compareAge(i, j))
}

// serves reports whether all queues of which a job asks for something let jobs in.
func (b *Book) serves(j *job) bool {
	for queue := range j.missing() {
		if q := b.queues[queue]; q == nil || q.spec == nil || q.err != nil || b.closed(q) {
			return false
		}
	}
	return true
}

// limited reports whether any ceiling is above what a job asks for.
func (b *Book) limited(j *job) bool {
	for queue := range j.missing() {
		for _, at := range b.Path(queue) {
			if q := b.queues[at]; q != nil && q.spec != nil && len(q.spec.Capability) > 0 {
				return true
			}
		}
	}
	return false
}

// overCeiling is the first ceiling that a job would exceed beside what is used but by itself and those that come later, and asked
// for by others.
func (b *Book) overCeiling(j *job, asked Needs, later []*job) (Bound, bool) {
	needs := j.missing()
	for _, queue := range slices.Sorted(maps.Keys(needs)) {
		for _, at := range b.Path(queue) {
			q := b.queues[at]
			if q == nil || q.spec == nil {
				continue // it is gone, and has no limits
			}
			for _, name := range slices.Sorted(maps.Keys(q.spec.Capability)) {
				used := q.used[name] + b.at(asked, at, name) - b.ownOf(j, later, at, name)
				bound := Bound{Reason: Capability, Queue: at, Resource: name, Used: used, Need: b.at(needs, at, name), Most: q.spec.Capability[name]}
				if bound.Need > 0 && bound.Exceeded(0) {
					return bound, true
				}
			}
		}
	}
	return Bound{}, false
}

// ownOf is how much a job and some others have in what a queue and those below it use.
func (b *Book) ownOf(j *job, others []*job, at string, name v1.ResourceName) int64 {
	sum := b.own(j, at, name)
	for _, other := range others {
		if other != j {
			sum += b.own(other, at, name)
		}
	}
	return sum
}
