package planner

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// ending is a framework whose context ends when nodes are about to be scored.
type ending struct {
	framework.Framework
	end context.CancelFunc
}

// RunPreScorePlugins implements framework.Framework.
func (e ending) RunPreScorePlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	defer e.end()
	return e.Framework.RunPreScorePlugins(ctx, state, pod, nodes)
}

// TestPlanEndsWithItsContext: a scheduler that is told to end while it scores nodes has no plan, and does not break down.
func TestPlanEndsWithItsContext(t *testing.T) {
	pods, claims := each(3, 2)
	p := devicePlanner(t, []int{4, 4, 4}, claims...)
	ctx, cancel := context.WithCancel(t.Context())
	p.fw = ending{p.fw, cancel}
	if plan, err := p.Plan(ctx, attemptOf(pods), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the plan is %+v, %v, want %v", plan, err, context.Canceled)
	}
}
