package planner

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// ending is a framework whose context ends when nodes are about to be scored, or their scores to be normalized.
type ending struct {
	framework.Framework
	end   context.CancelFunc
	later bool
}

// RunPreScorePlugins implements framework.Framework.
func (e ending) RunPreScorePlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if !e.later {
		defer e.end()
	}
	return e.Framework.RunPreScorePlugins(ctx, state, pod, nodes)
}

// NormalizeScores implements framework.Framework.
func (e ending) NormalizeScores(ctx context.Context, state fwk.CycleState, pod *v1.Pod, scores []fwk.NodePluginScores) *fwk.Status {
	e.end()
	return e.Framework.NormalizeScores(ctx, state, pod, scores)
}

// TestPlanEndsWithItsContext: a scheduler that is asked to end while it scores nodes has no plan, and does not break
// down.
func TestPlanEndsWithItsContext(t *testing.T) {
	for sentence, later := range map[string]bool{"before nodes are scored": false, "before scores are normalized": true} {
		t.Run(sentence, func(t *testing.T) {
			pods, claims := each(3, 2)
			p := devicePlanner(t, []int{4, 4, 4}, claims...)
			ctx, cancel := context.WithCancel(t.Context())
			p.fw = ending{p.fw, cancel, later}
			if plan, err := p.Plan(ctx, attemptOf(pods), nil); !errors.Is(err, context.Canceled) {
				t.Errorf("the plan is %+v, %v, want %v", plan, err, context.Canceled)
			}
		})
	}
}
