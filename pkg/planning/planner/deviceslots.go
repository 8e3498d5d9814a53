package planner

import (
	"fmt"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/devicesimulation"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// deviceSlots bounds how many members of a class a node takes by the devices it had when the plan began. A simulation
// has no such bound: pods may release theirs.
func (w *planState) deviceSlots(class, node int) int {
	if w.inCopies {
		return math.MaxInt32
	}
	return boundOn(w.classes[class].devicesLeft(), node)
}

// deviceSlotsEmpty bounds how many members of a class a node takes by all of its devices; 0 until its driver lists
// some.
func (w *planState) deviceSlotsEmpty(class, node int) int {
	return boundOn(w.classes[class].devices(), node)
}

func boundOn(bounds []int, node int) int {
	if bounds == nil {
		return math.MaxInt32
	}
	return bounds[node]
}

// overlay returns the devices as the plan sees them; nil if the profile does not filter by devices.
func (w *planState) overlay() *devicesimulation.Overlay {
	overlay, err := w.tx.DeviceOverlay()
	if err != nil {
		return nil // the filters report it
	}
	return overlay
}

// deviceBounds bounds, by node, how many members of a class find devices there: free ones, or any. Devices behind an
// extended resource count where the node itself does not list the resource. It returns nil if nothing bounds them.
func (w *planState) deviceBounds(c *class, all bool) (on []int) {
	overlay := w.overlay()
	if overlay == nil {
		return nil
	}
	bound := func(deviceClass string, count int64, counts func(fwk.NodeInfo) bool) {
		total, free, bounded := overlay.Bounds(deviceClass)
		if !bounded || count <= 0 {
			return
		}
		devices := free
		if all {
			devices = total
		}
		if devices == nil {
			return
		}
		if on == nil {
			on = slices.Repeat([]int{math.MaxInt32}, w.tx.Len())
		}
		for i := range on {
			if info := w.tx.Node(i); counts(info) {
				on[i] = min(on[i], int(int64(devices[info.Node().Name])/count))
			}
		}
	}
	for name, count := range c.Claims.Devices {
		bound(name, count, func(fwk.NodeInfo) bool { return true })
	}
	for name, count := range c.Demand.Request {
		if backing := w.backing(name); backing != "" {
			bound(backing, count, func(info fwk.NodeInfo) bool { return ledger.Amount(info.GetAllocatable(), name) == 0 })
		}
	}
	return on
}

// devicesBehind returns how many devices a node has behind an extended resource, and whether they count there: a device
// class backs the resource, and the node itself does not list it.
func (w *planState) devicesBehind(node int, name v1.ResourceName) (count int64, backed bool) {
	class := w.backing(name)
	if class == "" || ledger.Amount(w.tx.Node(node).GetAllocatable(), name) > 0 {
		return 0, false
	}
	if total, _, bounded := w.overlay().Bounds(class); bounded {
		return int64(total[w.tx.Node(node).Node().Name]), true
	}
	return math.MaxInt32, true
}

// devicesNow returns how many devices behind an extended resource a node has left in the plan's state, beside those of
// planned members and other pods and those held for others. It reports whether that is known.
func (w *planState) devicesNow(node int, name v1.ResourceName) (left int64, known bool) {
	devices, bounded, err := w.overlay().Left(w.backing(name), w.tx.Node(node).Node().Name)
	return int64(devices), bounded && err == nil // the filters report errors
}

// heldDevices returns, by node, what others hold together with devices. devicesNow has subtracted it already.
func (w *planState) heldDevices(f *minResources) map[string]resource.Vector {
	if f.held == nil {
		f.held = map[string]resource.Vector{}
		for _, other := range w.holds.Devices(f.holders...) {
			resource.AddTo(f.held, other.Node, other.Request, 1)
		}
	}
	return f.held
}

// devicesClaimed counts the devices behind an extended resource that the claims of pods would have, on the same basis
// as devicesNow. Claims that would not be allocated count with what they request.
func (w *planState) devicesClaimed(pods []*v1.Pod, name v1.ResourceName) int64 {
	class := w.backing(name)
	if class == "" {
		return 0
	}
	claims := sets.New[types.NamespacedName]()
	for _, pod := range pods {
		for _, key := range podclass.ResourceClaims(pod) {
			claims.Insert(key.Device())
		}
	}
	count, untold, err := w.overlay().Among(class, claims.UnsortedList()...)
	if err != nil {
		return 0 // the filters report errors
	}
	rest := map[string]int64{}
	for _, claim := range untold {
		addDevices(rest, claim)
	}
	return int64(count) + rest[class]
}

// backing returns the device class that backs an extended resource; empty for none.
func (w *planState) backing(name v1.ResourceName) string {
	if overlay := w.overlay(); overlay != nil {
		return overlay.Backing(name)
	}
	return ""
}

// claimLimit returns a message if members share a claim that cannot have as many users as the minimums of all gangs
// need; empty otherwise.
func (w *planState) claimLimit(a *gangstate.Attempt) string {
	naming := map[podclass.ClaimKey][]int{} // pending members that name a claim, by gang
	for i := range a.Gangs {
		for _, pod := range a.Gangs[i].Pending {
			for _, key := range podclass.ResourceClaims(pod) {
				if naming[key] == nil {
					naming[key] = make([]int, len(a.Gangs))
				}
				naming[key][i]++
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(naming), podclass.CompareClaims) {
		var users []resourceapi.ResourceClaimConsumerReference
		if claim, known := w.storage.ResourceClaim(key.Device()); known { // otherwise the filters report it
			users = claim.Status.ReservedFor
		}
		if w.uses[key]+len(users) <= resourceapi.ResourceClaimReservedForMaxSize {
			continue
		}
		members, others := usersOf(a, key, users)
		more := 0
		for i, need := range a.Gangs {
			more += max(0, need.Min-(len(need.Pending)-naming[key][i]))
		}
		if more > 0 && members+more+others > resourceapi.ResourceClaimReservedForMaxSize {
			beside := ""
			if others > 0 {
				beside = fmt.Sprintf(", and %d others use", others)
			}
			return fmt.Sprintf("%d members need ResourceClaim %s, which %d pods can use at most%s; "+
				"give each its own claim, by a ResourceClaimTemplate",
				members+more, key.Device(), resourceapi.ResourceClaimReservedForMaxSize, beside)
		}
	}
	return ""
}

// usersOf counts the placed members of an attempt that use a claim, and its users outside the attempt.
func usersOf(a *gangstate.Attempt, key podclass.ClaimKey,
	users []resourceapi.ResourceClaimConsumerReference) (members, others int) {
	ours := map[types.UID]bool{}
	for _, need := range a.Gangs {
		for _, pod := range need.Pending {
			ours[pod.UID] = true
		}
		for _, placed := range need.Placed {
			ours[placed.Pod.UID] = true
			if slices.Contains(podclass.ResourceClaims(placed.Pod), key) {
				members++
			}
		}
	}
	for _, user := range users {
		if !ours[user.UID] {
			others++
		}
	}
	return members, others
}

// shortDevices counts the devices that unplaced members claim, by device class, if nodes lacked any. A claim that
// members share counts once.
func (w *planState) shortDevices(members []int) map[string]int64 {
	if !w.lackingDevices {
		return nil
	}
	counts, seen := map[string]int64{}, map[podclass.ClaimKey]bool{}
	for _, m := range members {
		for _, key := range podclass.ResourceClaims(w.pods[m]) {
			claim, known := w.storage.ResourceClaim(key.Device()) // otherwise the filters have reported it
			if known && claim.Status.Allocation == nil && !seen[key] {
				seen[key] = true
				addDevices(counts, claim)
			}
		}
	}
	return counts
}

// addDevices adds what a claim asks for.
func addDevices(counts map[string]int64, claim *resourceapi.ResourceClaim) {
	for class, n := range deviceclaims.Asked(&claim.Spec) {
		counts[class] = resource.Plus(counts[class], n)
	}
}

// lacks reports whether nodes lacked a resource, or devices of a class that backs it.
func (w *planState) lacks(name v1.ResourceName) bool {
	return w.lacking[name] || w.lackingDevices && w.backing(name) != ""
}
