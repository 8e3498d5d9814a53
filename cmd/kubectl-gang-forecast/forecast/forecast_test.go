package forecast

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/explain"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
)

const unschedulable = "Unschedulable"

// placement is a failed attempt to place a/b in a rack that takes so many of its 10 members.
func placement(n int) *decisions.Decision {
	fit := decisions.Fit{Gang: "a/b", Topology: "topology.lockstep.dev/rack", Domain: "r", Fits: n, Min: 10}
	return &decisions.Decision{Kind: decisions.Placement, Result: decisions.Unplaced, Fits: []decisions.Fit{fit}}
}

// TestUncounted: of a pod that asks for GPUs only these are told, and nothing where none are left out.
func TestUncounted(t *testing.T) {
	list := []pools.Uncounted{
		{Amount: resource.Vector{"nvidia.com/gpu": 32, v1.ResourceCPU: 64000}, Nodes: 4, Why: "taint maintenance"},
		{Amount: resource.Vector{v1.ResourceCPU: 16000}, Nodes: 1, Why: "cordoned"},
	}
	for request, want := range map[v1.ResourceName][]string{
		"nvidia.com/gpu":   {"32 nvidia.com/gpu on 4 nodes do not count in shares: taint maintenance"},
		v1.ResourceCPU:     {"64 cpu on 4 nodes do not count in shares: taint maintenance", "16 cpu on 1 node do not count in shares: cordoned"},
		"example.com/fpga": nil,
	} {
		if diff := cmp.Diff(want, uncounted(list, resource.Vector{request: 1, v1.ResourceCPU: 1})); diff != "" {
			t.Errorf("of a pod that asks for %s (-want +got):\n%s", request, diff)
		}
	}
}

// TestDecide: which of the decisions are why a gang waits.
func TestDecide(t *testing.T) {
	evict := decisions.Decision{Kind: decisions.Preemption, Result: decisions.Evict}
	none := decisions.Decision{Kind: decisions.Preemption, Result: decisions.NoVictims}
	all := []decisions.Decision{*placement(6), none, evict, {Kind: decisions.Placement, Result: decisions.Placed, Chosen: "rack r"}}
	waits, placed, evicts := explain.Case{Asked: 10}, explain.Case{Asked: 10, Placed: 10}, explain.Case{Asked: 10, Placed: 10, Victims: []string{"a/low (8)"}}
	kept := explain.Case{Asked: 10}
	addDecisions(&waits, all[:2], false)
	addDecisions(&placed, all, false)
	addDecisions(&evicts, all, false)
	addDecisions(&kept, all[:2], true)
	if waits.Placement == nil || waits.Search == nil || waits.Search.Result != decisions.NoVictims {
		t.Errorf("waiting: %+v", waits)
	}
	if placed.Placement != nil || placed.Search != nil || placed.Chosen != "rack r" {
		t.Errorf("placed: %+v", placed)
	}
	if evicts.Search == nil || evicts.Search.Result != decisions.Evict {
		t.Errorf("placed by evicting others: %+v", evicts)
	}
	if kept.Placement != nil || kept.Search != nil {
		t.Errorf("kept by its queue: %+v", kept)
	}
}

// TestMoreNodes: whether autoscalers help goes by the plan.
func TestMoreNodes(t *testing.T) {
	nowhere := &decisions.Decision{Fits: []decisions.Fit{{Topology: "example.com/block", Min: 4}}}
	why := func(reason string) []view.Wait {
		return []view.Wait{{Reason: reason, Message: "words do not count", Pods: 4}}
	}
	for want, c := range map[explain.MoreNodes]struct {
		explain.Case
		scattered string
	}{
		explain.MoreNodesHelp:        {explain.Case{Why: why(unschedulable), Placement: placement(6)}, ""},
		explain.MoreNodesInOneDomain: {explain.Case{Why: why(unschedulable), Placement: placement(6)}, "rack"},
		explain.MoreNodesWithLabel:   {explain.Case{Why: why(unschedulable), Placement: nowhere}, ""},
		explain.MoreNodesNoHelp:      {explain.Case{Why: why("QueueCapability")}, ""},
	} {
		if got := moreNodes(&c.Case, c.scattered); got != want {
			t.Errorf("it says %s, want %s", got, want)
		}
	}
}
