package planner

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
)

// effort counts how often filters are asked, and what is allocated is gathered: for each member that would be allocated
// devices.
type effort struct {
	framework.Framework
	filtered, gathered atomic.Int64
}

func (*effort) Name() string { return "Effort" }

func (e *effort) Filter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status {
	e.filtered.Add(1)
	return nil
}

func (e *effort) SharedDRAManager() fwk.SharedDRAManager {
	return countedManager{e.Framework.SharedDRAManager(), e}
}

type countedManager struct {
	fwk.SharedDRAManager
	effort *effort
}

func (m countedManager) ResourceClaims() fwk.ResourceClaimTracker {
	return countedClaims{m.SharedDRAManager.ResourceClaims(), m.effort}
}

type countedClaims struct {
	fwk.ResourceClaimTracker
	effort *effort
}

func (c countedClaims) GatherAllocatedState() (*structured.AllocatedState, error) {
	c.effort.gathered.Add(1)
	return c.ResourceClaimTracker.GatherAllocatedState()
}

// TestCostOfDevices: arithmetic saves the look at racks that are too small, and at nodes on which a member that was
// placed changed nothing, however a gang asks for devices.
func TestCostOfDevices(t *testing.T) {
	const members, racks = 96, 24
	for sentence, c := range map[string]struct {
		devices  int
		required string
		complete bool
	}{
		"no rack has room":    {2, rackLabel, false},
		"each rack has room":  {6, rackLabel, true},
		"any node is as good": {1, "", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			ways, efforts := waysToAsk(members), map[string]*effort{}
			for how, way := range ways {
				e := &effort{}
				efforts[how] = e
				plugins := frameworkruntime.Registry{e.Name(): func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return e, nil }}
				e.Framework = deviceScheduler(t, plugins, slices.Repeat([]int{c.devices}, racks*nodesPerRack), way.objects...)
				a := attemptOf(way.pods)
				a.Gangs[0].Spec.RequiredTopology = c.required
				plan, err := New(e, ledger.New(), extensionpoints.New()).Plan(t.Context(), a, nil)
				if err != nil || plan.Complete != c.complete {
					t.Fatal(how, plan, err)
				}
			}
			filtered, gathered := efforts["claims"].filtered.Load(), efforts["claims"].gathered.Load()
			for how, e := range efforts {
				// A claim for an extended resource is made with the pod: it is prepared for once more when it gets its devices.
				if f, g := e.filtered.Load(), e.gathered.Load(); f > filtered || g > 2*gathered {
					t.Errorf("%s: filters are asked %d times, and what is allocated is gathered %d times; want no more than the %d and twice the %d for claims", how, f, g, filtered, gathered)
				}
			}
		})
	}
}
