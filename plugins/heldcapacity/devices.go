package heldcapacity

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/devicesimulation"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// devicesLeft checks whether a node has devices for a pod beside those that are held for others.
type devicesLeft struct {
	overlay *devicesimulation.Overlay
	// state is the cycle state for the filter.
	state fwk.CycleState
	// nodes are those on which devices are held; everywhere: what is held may be reached from other nodes, too.
	nodes      map[string]bool
	everywhere bool
}

// besideHeld finds what devices are left for a pod; nil if it needs none, or none are held for others. DynamicResources
// itself reports what keeps the pod from all nodes.
func (pl *HeldCapacity) besideHeld(ctx context.Context, pod *v1.Pod, holders []hold.Holder) (*devicesLeft, error) {
	held := pl.holds.Devices(holders...)
	if len(held) == 0 {
		return nil, nil
	}
	simulator, err := pl.devices()
	if err != nil || simulator == nil {
		return nil, err
	}
	b := &devicesLeft{overlay: simulator.Overlay(), state: framework.NewCycleState(), nodes: map[string]bool{}}
	if !b.overlay.MayNeedDevices(pod) {
		return nil, nil
	}
	if b.everywhere, err = b.overlay.Shared(pod); err != nil {
		return nil, err
	}
	for _, other := range held {
		b.overlay.Hold(other.Devices...)
		b.nodes[other.Node] = true
	}
	switch status := b.overlay.Prepare(ctx, b.state, pod); {
	case status.IsSuccess():
		return b, nil
	case status.IsRejected():
		return nil, nil
	default:
		return nil, status.AsError()
	}
}

// check returns whether a node has the devices for a pod, as a status.
func (b *devicesLeft) check(ctx context.Context, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	if !b.everywhere && !b.nodes[info.Node().Name] {
		return nil
	}
	status := b.overlay.Fits(ctx, b.state, pod, info)
	if status.IsRejected() {
		return fwk.NewStatus(fwk.Unschedulable, ledger.ErrReasonHeld)
	}
	return status
}
