package fairshare

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/dispatch"
	"github.com/lockstep-sh/lockstep/plugins/whatif"
)

var (
	_ whatif.TaskRemover = &FairShare{}
	_ whatif.TaskAdder   = &FairShare{}
	_ whatif.Allocatable = &FairShare{}
)

const crowdKey fwk.StateKey = "lockstep.dev/" + Name

// crowd is the limits of queues that a pod would exceed with all that is placed together with
// it, as things would be. It is in the cycle state of a what-if.
type crowd struct {
	bounds []dispatch.Bound
	// gone are the pods that would be.
	gone map[types.UID]bool
}

// Clone copies it.
func (c *crowd) Clone() fwk.StateData {
	return &crowd{bounds: slices.Clone(c.bounds), gone: maps.Clone(c.gone)}
}

// why words the first limit that is exceeded; empty if none is any more.
func (c *crowd) why() string {
	if bound, exceeded := dispatch.Exceeds(c.bounds); exceeded {
		return bound.String()
	}
	return ""
}

// shift takes in that a pod's amount comes, or with a negative n goes. The share is a matter of
// the queue itself, ceilings of all below them.
func (c *crowd) shift(path []string, amount dispatch.Vector, n int64) {
	for i := range c.bounds {
		if b := &c.bounds[i]; path[0] == b.Queue || b.Reason == dispatch.Capability && slices.Contains(path, b.Queue) {
			b.Freed -= n * amount[b.Resource]
		}
	}
}

func crowdOf(state fwk.CycleState) *crowd {
	data, err := state.Read(crowdKey)
	if err != nil {
		return nil // its queue is at no limit
	}
	c, _ := data.(*crowd)
	return c
}

// SimulateRemoveTask takes in that a pod would give back what it has of its queue.
func (pl *FairShare) SimulateRemoveTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toRemove fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if c := crowdOf(state); c != nil {
		uid := toRemove.GetPod().UID
		if usage, path := pl.dispatcher.running(uid); path != nil {
			c.gone[uid] = true
			c.shift(path, usage.Amount, -1)
		}
	}
	return nil
}

// SimulateAddTask takes in that a pod which was removed would be back. Pods that are placed
// by the what-if count already.
func (pl *FairShare) SimulateAddTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toAdd fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if c := crowdOf(state); c != nil {
		uid := toAdd.GetPod().UID
		if usage, path := pl.dispatcher.running(uid); path != nil && c.gone[uid] {
			delete(c.gone, uid)
			c.shift(path, usage.Amount, 1)
		}
	}
	return nil
}

// SimulateAllocatable tells whether the queue of a pod, and those above it, would keep their
// limits.
func (pl *FairShare) SimulateAllocatable(_ context.Context, state fwk.CycleState, _ *v1.Pod) *fwk.Status {
	if c := crowdOf(state); c != nil {
		if why := c.why(); why != "" {
			return fwk.NewStatus(fwk.Unschedulable, why)
		}
	}
	return nil
}
