package ownedpodgroup

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// Annotations returns what the PodGroup of a TrainJob lacks: Trainer counts all pods of its JobSet, whenever they are
// made.
func (s JobSetSpec) Annotations(meta *metav1.ObjectMeta, minMember int32) map[string]string {
	js := &jobSet{Metadata: *meta, Spec: s}
	m := js.members(func(*replicatedJob) bool { return true })
	return map[string]string{
		v1alpha1.StagesAnnotation:       gangspec.StagesText(m.Stages),
		v1alpha1.MinAvailableAnnotation: lowered(m.Min, minMember),
	}
}

// ofJobSet returns the members of the replicated jobs of a JobSet that are in the gang.
func ofJobSet(js *jobSet, in func(*replicatedJob) bool) Members {
	if js.Spec.Suspend {
		return Members{Suspended: true}
	}
	return js.members(in)
}

// members returns the members while the JobSet is not suspended.
func (js *jobSet) members(in func(*replicatedJob) bool) Members {
	levels := js.levels(in)
	var parts []part
	for i, l := range levels {
		first, rest, endless := js.partsOf(l)
		parts = append(parts, first, rest)
		if endless && i < len(levels)-1 {
			// As long as pods of this level come and go, a count of members cannot tell it from the next level.
			m := membersOf(parts)
			for _, later := range levels[i+1:] {
				for _, rj := range later.jobs {
					m.LeftOut = append(m.LeftOut, rj.Name)
				}
			}
			return m
		}
	}
	return membersOf(parts)
}

// partsOf returns the pods of a level, and those that are made when these are scheduled. endless: more come when some
// have succeeded.
func (js *jobSet) partsOf(l level) (first, rest part, endless bool) {
	first.afterPredecessorsEnd = l.afterPredecessorsEnd
	for _, rj := range l.jobs {
		n, more := PodsAtOnce(&rj.Template.Spec)
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
	afterPredecessorsEnd bool
}

// levels returns the levels of a gang, first the one that waits for none. JobSet refuses what depends on itself, or on
// a replicated job that does not come before it.
func (js *jobSet) levels(in func(*replicatedJob) bool) []level {
	inOrder := js.Spec.StartupPolicy.StartupPolicyOrder == orderInOrder
	levels := make([]level, len(js.Spec.ReplicatedJobs))
	of := map[string]int{}
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		at, afterEnd := 0, false
		if inOrder {
			at = i
		}
		for _, other := range rj.DependsOn {
			if before, ok := of[other.Name]; ok {
				at = max(at, before+1)
				afterEnd = afterEnd || other.Status == dependsOnComplete
			}
		}
		of[rj.Name] = at
		if in(rj) {
			levels[at].jobs = append(levels[at].jobs, rj)
			levels[at].afterPredecessorsEnd = levels[at].afterPredecessorsEnd || afterEnd
		}
	}
	return slices.DeleteFunc(levels, func(l level) bool { return len(l.jobs) == 0 })
}

// exclusive reports whether pods of a Job are made only when the first of them is scheduled. JobSet gives pods the
// annotation jobSetNodeSelector of a JobSet, or of a Job, only where that has jobSetExclusive too.
func (js *jobSet) exclusive(rj *replicatedJob) bool {
	ofPods := sets.KeySet(rj.Template.Spec.Template.Annotations)
	for _, given := range []map[string]string{js.Metadata.Annotations, rj.Template.Annotations} {
		if _, asks := given[jobSetExclusive]; asks {
			ofPods = ofPods.Union(sets.KeySet(given))
		}
	}
	return ofPods.Has(jobSetExclusive) && !ofPods.Has(jobSetNodeSelector)
}

// askedByPods returns the gang annotation of a pod whose template does not set it: a policy has written it on the pod,
// and will write it on pods of other templates; empty where there is none.
func askedByPods(js *jobSet, pods []*v1.Pod) string {
	for _, pod := range pods {
		for i := range js.Spec.ReplicatedJobs {
			rj := &js.Spec.ReplicatedJobs[i]
			_, says := rj.Template.Spec.Template.Annotations[v1alpha1.GangAnnotation]
			if !says && rj.Name == pod.Labels[v1alpha1.ReplicatedJobNameLabel] {
				return pod.Annotations[v1alpha1.GangAnnotation]
			}
		}
	}
	return ""
}

// asks returns the name of the owner's gang that the pods of a replicated job will be in; empty for none.
// otherwise is the annotation of their pods where the template does not set it.
func asks(js *jobSet, rj *replicatedJob, otherwise string) string {
	template := &rj.Template.Spec.Template
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations)},
		Spec:       v1.PodSpec{SchedulingGroup: template.Spec.SchedulingGroup},
	}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels,
		map[string]string{v1alpha1.JobSetNameLabel: js.Metadata.Name, v1alpha1.ReplicatedJobNameLabel: rj.Name})
	if _, says := pod.Annotations[v1alpha1.GangAnnotation]; !says && otherwise != "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.GangAnnotation, otherwise)
	}
	if key, source, ok := gangspec.KeyOf(pod); ok && source == gangspec.FromOwner {
		return key.Name
	}
	return ""
}
