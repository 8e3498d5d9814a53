package defragmentation

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// TestIgnoresDisruption: the first rule that may apply to an evicted pod decides what becomes of its Job.
func TestIgnoresDisruption(t *testing.T) {
	onDisruption := func(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}}
	}
	onCode := func(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpNotIn, Values: []int32{40}}}
	}
	const ignore, fail, count = batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionCount
	for name, c := range map[string]struct {
		rules []batchv1.PodFailurePolicyRule
		want  bool
	}{
		"none":                                {nil, false},
		"ignored":                             {[]batchv1.PodFailurePolicyRule{onDisruption(ignore)}, true},
		"counted":                             {[]batchv1.PodFailurePolicyRule{onDisruption(count), onDisruption(ignore)}, false},
		"its exit code may end the Job first": {[]batchv1.PodFailurePolicyRule{onCode(fail), onDisruption(ignore)}, false},
		"its exit code may count first":       {[]batchv1.PodFailurePolicyRule{onCode(count), onDisruption(ignore)}, false},
		"its exit code may be ignored first":  {[]batchv1.PodFailurePolicyRule{onCode(ignore), onDisruption(ignore)}, true},
		"its exit code comes later":           {[]batchv1.PodFailurePolicyRule{onDisruption(ignore), onCode(fail)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			job := &batchv1.Job{}
			if c.rules != nil {
				job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: c.rules}
			}
			if got := ignoresDisruption(job); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}
