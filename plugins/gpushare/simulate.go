package gpushare

import (
	"context"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/cyclestate"
)

var cycleKey fwk.StateKey = "lockstep.dev/" + Name

// cycle is what the plugin knows in the cycle of a pod, or in a what-if about it.
//
// The node itself has its pods, and most of them have a card for good.
// The cards of the others follow from the order in which they came, and that is all that
// a what-if has to keep: the same pods in the same order get the same cards, so a pod
// that is put back has what it had, and so have those beside it.
type cycle struct {
	// memory is what the pod requests, in MiB.
	memory int64
	// but is a pod that does not count on its node.
	but types.UID
	// touched are the nodes that the what-if has changed. The pods that they had and those
	// that came are in arrivals, also after they were taken away.
	touched sets.Set[string]
	// arrivals is keyed by the object and not by its UID: a pod that is put back is the object
	// that was taken away; a pod that is placed anew is another.
	arrivals map[*v1.Pod]arrival
}

// arrival is when a pod came to a node.
type arrival struct {
	// number is its place in the order; all numbers differ.
	number int
	// fresh: the what-if brought it, so its annotation of a card does not count.
	fresh bool
}

// Clone copies what a what-if changes.
func (c *cycle) Clone() fwk.StateData {
	copied := *c
	copied.touched, copied.arrivals = c.touched.Clone(), maps.Clone(c.arrivals)
	return &copied
}

// addArrival records a pod once.
func (c *cycle) addArrival(pod *v1.Pod, fresh bool) {
	if _, ok := c.arrivals[pod]; ok {
		return // the pod is put back
	}
	if c.arrivals == nil {
		c.arrivals = map[*v1.Pod]arrival{}
	}
	c.arrivals[pod] = arrival{number: len(c.arrivals), fresh: fresh}
}

// cycleOf returns what PreFilter has written; nil where the pod needs no GPU memory, or
// where PreFilter did not run.
func cycleOf(state fwk.CycleState) *cycle {
	return cyclestate.Read[*cycle](state, cycleKey)
}

// touch notes the pods of a node as the snapshot has them, before the first change to it.
// It has to be the snapshot: a what-if that gets all changes late has to come to the
// same order as one that got each in time.
func (pl *GPUShare) touch(c *cycle, node string) error {
	if c.touched.Has(node) {
		return nil
	}
	info, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return fmt.Errorf("looking up node %s in the snapshot: %w", node, err)
	}
	if c.touched == nil {
		c.touched = sets.New[string]()
	}
	c.touched.Insert(node)
	for _, p := range info.GetPods() {
		if requestedBy(p) > 0 {
			c.addArrival(p.GetPod(), false)
		}
	}
	return nil
}

// SimulatesNodeLocally marks that the cards of a node depend only on the pods on it.
func (pl *GPUShare) SimulatesNodeLocally() {}

// SimulateAddTask notes that a pod comes to a node: put back, or placed there anew.
func (pl *GPUShare) SimulateAddTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toAdd fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil || requestedBy(toAdd) <= 0 {
		return nil
	}
	if err := pl.touch(c, node.Node().Name); err != nil {
		return fwk.AsStatus(err)
	}
	c.addArrival(toAdd.GetPod(), true)
	return nil
}

// SimulateRemoveTask keeps what the pod had, and the order of the pods that stay: a node
// loses their order when it loses a pod.
func (pl *GPUShare) SimulateRemoveTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toRemove fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil || requestedBy(toRemove) <= 0 {
		return nil
	}
	return fwk.AsStatus(pl.touch(c, node.Node().Name))
}
