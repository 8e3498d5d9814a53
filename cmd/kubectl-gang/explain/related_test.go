package explain

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	for _, row := range view.Plans(readRelated(t.Context(), read, "a/b").plans) {
		got = append(got, planned(&row))
	}
	if diff := cmp.Diff([]string{
		"DefragmentationPlan asked is to make room for it: Pending",
		"DefragmentationPlan moves is to make room for it: Running, 1 of 4 moves are done; ",
	}, got); diff != "" {
		t.Errorf("plans (-want +got):\n%s", diff)
	}
}
