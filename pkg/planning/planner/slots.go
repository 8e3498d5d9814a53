package planner

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// Slots bounds from above how many more members of a class a node takes, without running filters. A resource that the
// node does not list is left to the filters: some plugins provide it by other means.
func (w *planState) Slots(class, node int) int {
	n, _ := w.slots(class, node)
	return n
}

// slots returns what Slots does, and the resource that is scarce.
func (w *planState) slots(class, node int) (int, v1.ResourceName) {
	beyond := w.slotsBeyondRequests(class, node)
	if beyond == 0 {
		return 0, ""
	}
	n, scarce := w.slotsByRequests(class, node, nil, 0)
	return min(n, beyond), scarce
}

// slotsBeyondRequests bounds how many more members of a class a node takes by their volumes, their devices and their
// anti-affinity.
func (w *planState) slotsBeyondRequests(class, node int) int {
	most := w.volumeSlots(class, node)
	if w.classes[class].Alone {
		most = min(most, 1)
	}
	return min(most, max(1, w.deviceSlots(class, node))) // the filters report devices that are not there
}

// slotsByRequests bounds the same by their requests, if so much were freed on the node, by so many pods. It is the same
// for classes that are alike.
func (w *planState) slotsByRequests(class, node int, freed resource.Vector, pods int) (int, v1.ResourceName) {
	info, demand := w.tx.Node(node), w.classes[class].Demand
	least, scarce := math.MaxInt32, v1.ResourceName("")
	if len(demand.Ports) > 0 {
		least = 1
	}
	if !w.checksResources {
		return min(least, len(w.pods)), scarce
	}
	has, used := info.GetAllocatable(), info.GetRequested()
	taken, some := w.holds.Others(info, w.classes[class].holders...)
	if n := has.GetAllowedPodNumber() - len(info.GetPods()) - taken.Pods + pods; n <= least {
		least, scarce = n, v1.ResourcePods
	}
	for name, amount := range demand.Request {
		total := ledger.Amount(has, name)
		if total == 0 && !isNative(name) {
			continue
		}
		free := total - ledger.Amount(used, name) + freed[name]
		if some {
			free -= taken.Request[name]
		}
		if n := int(min(free/amount, math.MaxInt32)); n < least {
			least, scarce = n, name
		}
	}
	return max(0, least), scarce
}

func isNative(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
}

// slot is a node for a class.
type slot struct{ class, node int }
