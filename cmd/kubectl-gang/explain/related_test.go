package explain

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// TestPlanned: of all plans those for the gang are told that have not ended, and how far they have come.
func TestPlanned(t *testing.T) {
	plan := func(name, goal string, phase v1alpha1.DefragmentationPhase) v1alpha1.DefragmentationPlan {
		p := v1alpha1.DefragmentationPlan{}
		p.Name, p.Spec.Goal.PodGroup = name, goal
		p.Status.Phase, p.Status.MoveCount, p.Status.MovedCount = phase, 4, 1
		return p
	}
	pending := plan("asked", "a/b", "")
	pending.Status.MoveCount = 0
	read := func(_ context.Context, _ string, into any) error {
		if plans, ok := into.(*v1alpha1.DefragmentationPlanList); ok {
			plans.Items = []v1alpha1.DefragmentationPlan{
				plan("done", "a/b", v1alpha1.DefragmentationSucceeded), plan("other", "a/c", v1alpha1.DefragmentationRunning),
				plan("moves", "a/b", v1alpha1.DefragmentationRunning), pending,
			}
		}
		return nil
	}
	var got []string
	for _, row := range view.Plans(readBeside(t.Context(), read, "a/b").plans) {
		got = append(got, planned(&row))
	}
	if diff := cmp.Diff([]string{
		"DefragmentationPlan asked is to make room for it: Pending",
		"DefragmentationPlan moves is to make room for it: Running, 1 of 4 moves are done; ",
	}, got); diff != "" {
		t.Errorf("plans (-want +got):\n%s", diff)
	}
}

// TestFailedJob: who asks for a gang that was evicted is told if its Job makes no more pods.
func TestFailedJob(t *testing.T) {
	group := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "batch/v1", Kind: "Job", Name: "train", Controller: ptr.To(true)},
	}}}
	for status, want := range map[v1.ConditionStatus][]string{
		v1.ConditionTrue:  {`Job "train" has failed since (BackoffLimitExceeded), and makes no more pods: make it again`},
		v1.ConditionFalse: nil,
	} {
		read := func(_ context.Context, path string, into any) error {
			job, ok := into.(*batchv1.Job)
			if !ok || path != "/apis/batch/v1/namespaces/a/jobs/train" {
				return fmt.Errorf("there is no %s", path)
			}
			job.Name = "train"
			job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: status, Reason: "BackoffLimitExceeded"}}
			return nil
		}
		if diff := cmp.Diff(want, failedJob(t.Context(), read, []*coscheduling.PodGroup{group})); diff != "" {
			t.Errorf("it has failed, %s (-want +got):\n%s", status, diff)
		}
	}
}
