package ownergroup

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
)

// ofJobSet is the wish for those of the replicated jobs of a JobSet that are in the gang.
func ofJobSet(js *jobSet, in func(*replicatedJob) bool) wish {
	levels, together := levelsOf(js, in)
	var parts []part
	for i, level := range levels {
		var first, rest part
		endless := false
		for _, rj := range level {
			n, more := podsOf(&rj.Template.Spec)
			replicas := int(valueOr(rj.Replicas, 1))
			endless = endless || more && replicas > 0
			if js.exclusive(rj) && n > 1 {
				first.add(replicas, &rj.Template.Spec.Template)
				rest.add(replicas*(n-1), &rj.Template.Spec.Template)
			} else {
				first.add(replicas*n, &rj.Template.Spec.Template)
			}
		}
		parts = append(parts, first, rest)
		if later := slices.Concat(levels[i+1:]...); endless && len(later) > 0 {
			// As long as pods of this level come and go, who counts members cannot tell it from the next.
			w := wishOf(parts, together)
			for _, rj := range later {
				w.leftOut = append(w.leftOut, rj.Name)
			}
			return w
		}
	}
	return wishOf(parts, together)
}

// levelsOf are the replicated jobs of a gang that are made at the same time, first those that wait for
// none. together: none waits until another has completed.
func levelsOf(js *jobSet, in func(*replicatedJob) bool) (levels [][]*replicatedJob, together bool) {
	inOrder := js.Spec.StartupPolicy.StartupPolicyOrder == orderInOrder
	together = true
	level := map[string]int{}
	for i := range js.Spec.ReplicatedJobs { // who is waited for stands before who waits
		rj := &js.Spec.ReplicatedJobs[i]
		at := 0
		if inOrder {
			at = i
		}
		for _, other := range rj.DependsOn {
			at = max(at, level[other.Name]+1)
			together = together && other.Status != dependsOnComplete
		}
		level[rj.Name] = at
		if !in(rj) {
			continue
		}
		for len(levels) <= at {
			levels = append(levels, nil)
		}
		levels[at] = append(levels[at], rj)
	}
	return slices.DeleteFunc(levels, func(level []*replicatedJob) bool { return len(level) == 0 }), together
}

// exclusive reports whether pods of a Job are made only when the first of them is scheduled.
func (js *jobSet) exclusive(rj *replicatedJob) bool {
	keys := sets.KeySet(js.Metadata.Annotations).Union(sets.KeySet(rj.Template.Annotations))
	return keys.Has(jobSetExclusive) && !keys.Has(jobSetNodeSelector)
}
