package whatif

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// crowdShy has a plugin that rejects pods in PreFilter as soon as any pod is on a node.
type crowdShy struct{ framework.Framework }

func (f crowdShy) RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string]) {
	nodes, err := f.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err), nil
	}
	for _, node := range nodes {
		if len(node.GetPods()) > 0 {
			return nil, fwk.NewStatus(fwk.Unschedulable, "too many pods"), nil
		}
	}
	return f.Framework.RunPreFilterPlugins(ctx, state, pod)
}

// TestRejectedBesideExpected: a pod that a plugin rejects beside all that may come is prepared as things are, and the
// snapshot is left as it was.
func TestRejectedBesideExpected(t *testing.T) {
	s := newStage(t)
	s.set()
	before := s.facts(t)
	tx, err := Begin(crowdShy{s.fw}, HooksOf(extensionpoints.New(), s.fw), false)
	must.Succeed(t, err)
	tx.ExpectPod(idle.PodInfo(t, pod("gpu-apart", 1)))
	if v := view(t, tx, pod("gpu", 2)); v == nil {
		t.Error("it is rejected as things are")
	}
	s.mustBe(t, "after a view", before)
}
