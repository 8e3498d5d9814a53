package ownergroup

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
)

// ofJobSet returns the wish for the replicated jobs of a JobSet that are in the gang.
func ofJobSet(js *jobSet, in func(*replicatedJob) bool) wish {
	if js.Spec.Suspend {
		return wish{none: true}
	}
	levels := levelsOf(js, in)
	var parts []part
	for i, l := range levels {
		first, rest, endless := js.partsOf(l)
		parts = append(parts, first, rest)
		if endless && i < len(levels)-1 {
			// As long as pods of this level come and go, a count of members cannot tell it from the next level.
			w := wishOf(parts)
			for _, later := range levels[i+1:] {
				for _, rj := range later.jobs {
					w.leftOut = append(w.leftOut, rj.Name)
				}
			}
			return w
		}
	}
	return wishOf(parts)
}

// partsOf returns the pods of a level, and those that are made when these are scheduled. endless: more come when some
// have succeeded.
func (js *jobSet) partsOf(l level) (first, rest part, endless bool) {
	first.afterPredecessorsEnd = l.afresh
	for _, rj := range l.jobs {
		n, more := podsOf(&rj.Template.Spec)
		replicas := int(ptr.Deref(rj.Replicas, 1))
		endless = endless || more && replicas > 0
		if js.exclusive(rj) && n > 1 {
			first.add(replicas, &rj.Template.Spec.Template)
			rest.add(replicas*(n-1), &rj.Template.Spec.Template)
		} else {
			first.add(replicas*n, &rj.Template.Spec.Template)
		}
	}
	return first, rest, endless
}

// level is the replicated jobs that are made at the same time.
type level struct {
	jobs []*replicatedJob
	// afterPredecessorsEnd: one of them waits until others have completed.
	afresh bool
}

// levelsOf returns the levels of a gang, first the one that waits for none.
func levelsOf(js *jobSet, in func(*replicatedJob) bool) []level {
	inOrder := js.Spec.StartupPolicy.StartupPolicyOrder == orderInOrder
	levels := make([]level, len(js.Spec.ReplicatedJobs))
	of := map[string]int{}
	for i := range js.Spec.ReplicatedJobs { // a job comes after the jobs that it waits for
		rj := &js.Spec.ReplicatedJobs[i]
		at, afresh := 0, false
		if inOrder {
			at = i
		}
		for _, other := range rj.DependsOn {
			at = max(at, of[other.Name]+1)
			afresh = afresh || other.Status == dependsOnComplete
		}
		of[rj.Name] = at
		if in(rj) && at < len(levels) {
			levels[at].jobs = append(levels[at].jobs, rj)
			levels[at].afresh = levels[at].afresh || afresh
		}
	}
	return slices.DeleteFunc(levels, func(l level) bool { return len(l.jobs) == 0 })
}

// exclusive reports whether pods of a Job are made only when the first of them is scheduled.
func (js *jobSet) exclusive(rj *replicatedJob) bool {
	keys := sets.KeySet(js.Metadata.Annotations).Union(sets.KeySet(rj.Template.Annotations))
	return keys.Has(jobSetExclusive) && !keys.Has(jobSetNodeSelector)
}
