package podadmission

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MergeLabelKeys changes the selectors of a pod as the API server does. What a selector has already is written again:
// the API server refuses a key of matchLabelKeys that is in the selector twice.
func MergeLabelKeys(pod *v1.Pod) { merge(pod, true) }

// MergeMissingLabelKeys is [MergeLabelKeys] for what may have been taken from a pod of the API server: what a selector
// has already is left as it is.
func MergeMissingLabelKeys(pod *v1.Pod) { merge(pod, false) }

func merge(pod *v1.Pod, again bool) {
	add := func(selector *metav1.LabelSelector, keys []string, operator metav1.LabelSelectorOperator) {
		if selector == nil {
			return // it selects no pod
		}
		for _, key := range keys {
			value, ok := pod.Labels[key]
			if !ok || !again && slices.ContainsFunc(selector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
				return r.Key == key && r.Operator == operator && slices.Equal(r.Values, []string{value})
			}) {
				continue
			}
			selector.MatchExpressions = append(selector.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
		}
	}
	for _, term := range Terms(pod.Spec.Affinity) {
		add(term.LabelSelector, term.MatchLabelKeys, metav1.LabelSelectorOpIn)
		add(term.LabelSelector, term.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	}
	for _, constraint := range pod.Spec.TopologySpreadConstraints {
		add(constraint.LabelSelector, constraint.MatchLabelKeys, metav1.LabelSelectorOpIn)
	}
}

// Terms returns all terms about other pods, with the selectors of the pod itself.
func Terms(affinity *v1.Affinity) (all []v1.PodAffinityTerm) {
	if affinity == nil {
		return nil
	}
	for _, a := range []*v1.PodAffinity{affinity.PodAffinity, (*v1.PodAffinity)(affinity.PodAntiAffinity)} {
		if a == nil {
			continue
		}
		all = append(all, a.RequiredDuringSchedulingIgnoredDuringExecution...)
		for _, preferred := range a.PreferredDuringSchedulingIgnoredDuringExecution {
			all = append(all, preferred.PodAffinityTerm)
		}
	}
	return all
}
