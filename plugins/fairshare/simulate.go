package fairshare

import (
	"cmp"
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/cyclestate"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/usage"
)

var (
	_ whatif.TaskRemover = &FairShare{}
	_ whatif.TaskAdder   = &FairShare{}
	_ whatif.Allocatable = &FairShare{}
)

const limitsKey fwk.StateKey = "lockstep.dev/" + Name

// ErrReasonPool is the reason of nodes of a pool in which the queue of the pod has no room.
const ErrReasonPool = "node(s) in a pool in which the pod's queue is at a limit"

// limits is what limits a pod: where it may be placed, and, in the cycle state of a what-if, the
// limits of queues that it would exceed with all that is placed together with it, as things
// would be.
type limits struct {
	// pools are those in which its queue has room, of several that it may use; nil for any.
	pools  []string
	bounds []queueing.Bound
	// ofAll are, for each choice, the ceilings of all that is placed together with it, if it keeps the limits since a part
	// may be placed by itself: pods are evicted only for all of it.
	ofAll [][]queueing.Bound
	// gone are the pods that are removed in the what-if.
	gone map[types.UID]bool
}

// Clone copies it.
func (c *limits) Clone() fwk.StateData {
	ofAll := make([][]queueing.Bound, len(c.ofAll))
	for i := range c.ofAll {
		ofAll[i] = slices.Clone(c.ofAll[i])
	}
	return &limits{pools: c.pools, bounds: slices.Clone(c.bounds), ofAll: ofAll, gone: maps.Clone(c.gone)}
}

// why describes the first limit that is exceeded; empty once none is.
func (c *limits) why() string {
	if bound, exceeded := queueing.Exceeds(c.bounds); exceeded {
		return bound.Brief()
	}
	if len(c.gone) == 0 {
		return ""
	}
	why := ""
	for _, ceilings := range c.ofAll {
		bound, exceeded := queueing.Exceeds(ceilings)
		if !exceeded {
			return ""
		}
		why = cmp.Or(why, bound.Brief())
	}
	return why
}

// limits returns what limits a pod as things are, before victims have made way; nil if nothing
// does. Where it would exceed a limit, and this is no what-if, the pod is about to be refused.
func (d *Dispatcher) limits(pod *v1.Pod, asked bool) *limits {
	want, undecided := d.gangs.Wants(pod)
	if !undecided || d.covered(pod, want.Pods) {
		return nil
	}
	name := usage.NameOf(pod, want)
	defer d.lock()()
	var c limits
	var choices []queueing.Choice
	offered := queueing.Job{Name: name}
	if d.book.Phase(name) == queueing.Admitted {
		c.bounds, choices = d.book.Choices(name)
	} else {
		offered = d.job(name, pod, want)
		c.bounds, choices = d.book.Ceilings(offered)
	}
	if asked && len(c.bounds) == 0 && want.Parts {
		c.ofAll = d.book.CeilingsOfAll(offered, choices)
	}
	c.pools = d.poolsOf(pod, choices)
	if len(c.bounds)+len(c.ofAll) == 0 && c.pools == nil {
		return nil
	}
	if len(c.bounds) > 0 && !asked {
		d.book.RecordFinding(string(pod.UID), true, false)
	}
	c.gone = map[types.UID]bool{}
	return &c
}

// poolsOf returns the pools that a pod has with some of the options of its job; nil if it can use
// only one anyway, or asks for nothing.
func (d *Dispatcher) poolsOf(pod *v1.Pod, choices []queueing.Choice) []string {
	counted, known := d.usage.Pod(pod.UID)
	if !known || len(counted.Class.Pools()) == 1 {
		return nil
	}
	usage, _ := d.book.Counted(string(pod.UID))
	var pools, others []string
	for _, choice := range choices {
		named := choice.Pools()
		own := queueing.Choice{Need: queueing.Needs{usage.Queue: usage.Option(choice.At)}}
		for _, of := range counted.Class.Pools() {
			if named[of] && own.Pools()[of] {
				pools = append(pools, of)
			} else if named[of] {
				others = append(others, of)
			}
		}
	}
	if len(pools) == 0 {
		return others // since its turn came it may use other pools, but has none in them
	}
	return pools
}

// Filter keeps a pod that may use several pools of nodes out of those in which its queue has no
// room. It costs a look at the labels of the node; for other pods PreFilter skips it.
func (pl *FairShare) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	if c := limitsIn(state); c != nil && c.pools != nil &&
		!slices.Contains(c.pools, pl.dispatcher.nodes.PoolOf(info.Node())) {
		return fwk.NewStatus(fwk.Unschedulable, ErrReasonPool)
	}
	return nil
}

// shift counts a pod's amount against the bounds, or with a negative n gives it back. The share concerns
// the queue itself, ceilings all queues below them.
func (c *limits) shift(path []string, amount queueing.Vector, n int64) {
	for _, bounds := range append(slices.Clip(c.ofAll), c.bounds) {
		for i := range bounds {
			if b := &bounds[i]; path[0] == b.Queue || b.Reason == queueing.Capability && slices.Contains(path, b.Queue) {
				b.Freed -= n * amount[b.Resource]
			}
		}
	}
}

// limitsIn returns the limits that the queue of a pod is at; nil for none.
func limitsIn(state fwk.CycleState) *limits {
	return cyclestate.Read[*limits](state, limitsKey)
}

// SimulatesNodeLocally marks that nodes are judged by what PreFilter found: what pods give back
// decides whether their queues have room, which does not depend on nodes.
func (pl *FairShare) SimulatesNodeLocally() {}

// SimulateRemoveTask gives what a pod has back to its queue.
func (pl *FairShare) SimulateRemoveTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toRemove fwk.PodInfo,
	_ fwk.NodeInfo) *fwk.Status {
	if c := limitsIn(state); c != nil {
		uid := toRemove.GetPod().UID
		amount, path := pl.dispatcher.freed(uid, c.gone)
		if c.gone[uid] = true; path != nil { // what is in no queue frees none
			c.shift(path, amount, -1)
		}
	}
	return nil
}

// SimulateAddTask undoes the removal of a pod. Pods that are placed
// by the what-if count already.
func (pl *FairShare) SimulateAddTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toAdd fwk.PodInfo,
	_ fwk.NodeInfo) *fwk.Status {
	if c := limitsIn(state); c != nil {
		uid := toAdd.GetPod().UID
		if !c.gone[uid] {
			return nil
		}
		delete(c.gone, uid)
		if amount, path := pl.dispatcher.freed(uid, c.gone); path != nil {
			c.shift(path, amount, 1)
		}
	}
	return nil
}

// SimulateAllocatable reports whether the queue of a pod, and those above it, would keep their
// limits.
func (pl *FairShare) SimulateAllocatable(_ context.Context, state fwk.CycleState, _ *v1.Pod) *fwk.Status {
	if c := limitsIn(state); c != nil {
		if why := c.why(); why != "" {
			return fwk.NewStatus(fwk.Unschedulable, why)
		}
	}
	return nil
}
