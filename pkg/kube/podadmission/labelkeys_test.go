package podadmission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/registry/core/pod"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestMerge: what is written is what the API server's own code writes.
func TestMerge(t *testing.T) {
	made, stored := example(), created(t, example())
	MergeLabelKeys(made)
	if diff := cmp.Diff(stored.Spec, made.Spec); diff != "" {
		t.Errorf("not as the API server has it (-want +got):\n%s", diff)
	}
	if cmp.Equal(example().Spec, made.Spec) {
		t.Error("nothing was written")
	}
	MergeLabelKeys(made)
	if want := created(t, stored); !cmp.Equal(want.Spec, made.Spec) {
		t.Errorf("once more it is not as the API server has it (-want +got):\n%s", cmp.Diff(want.Spec, made.Spec))
	}
}

// TestMergeMissing: a pod that the API server made stays as it is.
func TestMergeMissing(t *testing.T) {
	made, stored := example(), created(t, example())
	for _, state := range []string{"without the expressions", "with them"} {
		MergeMissingLabelKeys(made)
		if diff := cmp.Diff(stored.Spec, made.Spec); diff != "" {
			t.Errorf("%s (-want +got):\n%s", state, diff)
		}
	}
}

// TestMergeNothing: pods need no affinity.
func TestMergeNothing(t *testing.T) {
	for _, affinity := range []*v1.Affinity{nil, {}, {PodAffinity: &v1.PodAffinity{}, PodAntiAffinity: &v1.PodAntiAffinity{}}} {
		made := &v1.Pod{Spec: v1.PodSpec{Affinity: affinity.DeepCopy()}}
		MergeLabelKeys(made)
		if !cmp.Equal(made.Spec.Affinity, affinity) {
			t.Errorf("%v became %v", affinity, made.Spec.Affinity)
		}
	}
}

// example returns a pod with keys of all kinds in all places: some that are no labels of it, a term without a selector,
// and one that the user wrote beside others.
func example() *v1.Pod {
	selector := func() *metav1.LabelSelector {
		return &metav1.LabelSelector{
			MatchLabels:      map[string]string{"app": "train"},
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tenant", Operator: metav1.LabelSelectorOpExists}},
		}
	}
	required := func() []v1.PodAffinityTerm {
		return []v1.PodAffinityTerm{
			{TopologyKey: "rack", LabelSelector: selector(), MatchLabelKeys: []string{"job", "none"}, MismatchLabelKeys: []string{"tenant", "none"}},
			{TopologyKey: "rack", MatchLabelKeys: []string{"job"}},
			{TopologyKey: "rack", LabelSelector: selector()},
		}
	}
	preferred := func() []v1.WeightedPodAffinityTerm {
		return []v1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: required()[0]}, {Weight: 2, PodAffinityTerm: required()[1]}}
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"job": "j", "tenant": "a", "app": "train"}},
		Spec: v1.PodSpec{
			Affinity: &v1.Affinity{
				PodAffinity: &v1.PodAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: required(), PreferredDuringSchedulingIgnoredDuringExecution: preferred(),
				},
				PodAntiAffinity: &v1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: required(), PreferredDuringSchedulingIgnoredDuringExecution: preferred(),
				},
			},
			TopologySpreadConstraints: []v1.TopologySpreadConstraint{
				{MaxSkew: 1, TopologyKey: "rack", LabelSelector: selector(), MatchLabelKeys: []string{"job", "none"}},
				{MaxSkew: 1, TopologyKey: "rack", MatchLabelKeys: []string{"job"}},
			},
		},
	}
}

// created returns what the API server makes of a pod.
func created(t *testing.T, from *v1.Pod) *v1.Pod {
	t.Helper()
	var internal core.Pod
	must.Succeed(t, corev1.Convert_v1_Pod_To_core_Pod(from.DeepCopy(), &internal, nil))
	pod.Strategy.PrepareForCreate(t.Context(), &internal)
	var made v1.Pod
	must.Succeed(t, corev1.Convert_core_Pod_To_v1_Pod(&internal, &made, nil))
	made.Spec.SecurityContext = from.Spec.SecurityContext // the conversion gives it an empty one
	return &made
}
