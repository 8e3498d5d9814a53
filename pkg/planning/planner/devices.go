package planner

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// deviceClaim returns the name of a pod's i-th ResourceClaim; empty until it exists.
func deviceClaim(pod *v1.Pod, i int) string {
	name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
	if err != nil || name == nil {
		return ""
	}
	return *name
}

// deviceKey returns the key of a ResourceClaim among volume claims, whose names contain no slash.
func deviceKey(pod *v1.Pod, name string) claimKey {
	return claimKey{pod.Namespace, devicePrefix + name}
}

const devicePrefix = "devices/"

func compareClaims(a, b claimKey) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// device returns the namespace and name of the ResourceClaim of a key.
func (k claimKey) device() types.NamespacedName {
	return types.NamespacedName{Namespace: k.namespace, Name: strings.TrimPrefix(k.name, devicePrefix)}
}

// deviceKeys returns the keys of a pod's ResourceClaims that exist.
func deviceKeys(pod *v1.Pod) (keys []claimKey) {
	for i := range pod.Spec.ResourceClaims {
		if name := deviceClaim(pod, i); name != "" && !slices.Contains(keys, deviceKey(pod, name)) {
			keys = append(keys, deviceKey(pod, name))
		}
	}
	return keys
}

// readDevices adds a pod's ResourceClaims to c. Claims that ask for the same, and that no other pod has, are alike. A
// claim that members share goes by its name: once one of them has it, the others must go where it is.
func (s storage) readDevices(c *claimed, pod *v1.Pod, uses map[claimKey]int) error {
	for i := range pod.Spec.ResourceClaims {
		c.any = true
		name := deviceClaim(pod, i)
		if name == "" || s.devices == nil {
			c.shape = append(c.shape, "devices to be claimed")
			continue
		}
		claim, err := s.devices.Get(pod.Namespace, name)
		if err != nil && !errors.Is(err, assumecache.ErrNotFound) {
			return fmt.Errorf("reading ResourceClaim %s/%s of pod %s: %w", pod.Namespace, name, pod.Name, err)
		}
		shared := uses[deviceKey(pod, name)] > 1
		switch {
		case err != nil, claim.DeletionTimestamp != nil, claim.Status.Allocation != nil,
			s.devices.GetPendingAllocation(claim.UID) != nil:
			c.shape = append(c.shape, "devices", name)
		case shared:
			c.contends = true
			c.shape = append(c.shape, "devices", name)
		default:
			c.shape = append(c.shape, "devices", claim.Spec)
			c.countDevices(claim)
		}
	}
	return nil
}

// countDevices counts the devices that a claim is allocated at least: neither optional ones nor those with admin
// access.
func (c *claimed) countDevices(claim *resourceapi.ResourceClaim) {
	for _, request := range claim.Spec.Devices.Requests {
		if one := request.Exactly; one != nil && one.AllocationMode == resourceapi.DeviceAllocationModeExactCount &&
			!ptr.Deref(one.AdminAccess, false) {
			if c.devices == nil {
				c.devices = map[string]int64{}
			}
			c.devices[one.DeviceClassName] += one.Count
		}
	}
}

// deviceSlots bounds how many members of a class a node takes by the devices it had when the plan began. A simulation
// has no such bound: pods may release theirs.
func (w *planState) deviceSlots(class, node int) int {
	if w.inCopies {
		return math.MaxInt32
	}
	return w.deviceBound(class, node, false)
}

// deviceSlotsEmpty bounds how many members of a class a node takes by all of its devices; 0 until its driver lists
// some.
func (w *planState) deviceSlotsEmpty(class, node int) int { return w.deviceBound(class, node, true) }

func (w *planState) deviceBound(class, node int, all bool) int {
	c := w.classes[class]
	bounds := &c.devicesLeft
	if all {
		bounds = &c.devices
	}
	if !bounds.known {
		bounds.known, bounds.on = true, w.deviceBounds(c, all)
	}
	if bounds.on == nil {
		return math.MaxInt32
	}
	return bounds.on[node]
}

// bounds is a number of members by node; nil if nothing bounds them.
type bounds struct {
	known bool
	on    []int
}

// deviceBounds bounds, by node, how many members of a class find devices there: free ones, or any. Devices behind an
// extended resource count where the node itself does not list the resource. It returns nil if nothing bounds them.
func (w *planState) deviceBounds(c *class, all bool) (on []int) {
	if w.storage.stock == nil {
		return nil
	}
	bound := func(deviceClass string, count int64, counts func(fwk.NodeInfo) bool) {
		devices := w.devicesOf(deviceClass, all)
		if devices == nil || count <= 0 {
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
	for name, count := range c.claims.devices {
		bound(name, count, func(fwk.NodeInfo) bool { return true })
	}
	for name, count := range c.demand.Request {
		if backing := w.backing(name); backing != "" {
			bound(backing, count, func(info fwk.NodeInfo) bool { return ledger.Amount(info.GetAllocatable(), name) == 0 })
		}
	}
	return on
}

// devicesOf returns how many devices of a device class each node has, all or free ones; nil if nothing bounds them.
func (w *planState) devicesOf(deviceClass string, all bool) map[string]int {
	key := counted{deviceClass, all}
	devices, known := w.devices[key]
	if !known {
		count := w.storage.stock.Left
		if all {
			count = w.storage.stock.All
		}
		var bounded bool
		var err error
		if devices, bounded, err = count(deviceClass); err != nil || !bounded {
			devices = nil // the filters report it
		}
		w.devices[key] = devices
	}
	return devices
}

// counted identifies a count of devices of a class, all or free ones.
type counted struct {
	deviceClass string
	all         bool
}

// devicesBehind returns how many devices a node has behind an extended resource, and whether they count there: a device
// class backs the resource, and the node itself does not list it.
func (w *planState) devicesBehind(node int, name v1.ResourceName) (count int64, backed bool) {
	class := w.backing(name)
	if class == "" || w.storage.stock == nil || ledger.Amount(w.tx.Node(node).GetAllocatable(), name) > 0 {
		return 0, false
	}
	if devices := w.devicesOf(class, true); devices != nil {
		return int64(devices[w.tx.Node(node).Node().Name]), true
	}
	return math.MaxInt32, true
}

// devicesNow returns how many devices behind an extended resource a node has left in the plan's state, beside those of
// planned members and other pods and those held for others. It reports whether that is known.
func (w *planState) devicesNow(node int, name v1.ResourceName) (left int64, known bool) {
	devices, bounded, err := w.tx.DevicesLeft(w.backing(name), node)
	return int64(devices), bounded && err == nil // the filters report errors
}

// heldDevices returns, by node, what others hold together with devices. devicesNow has subtracted it already.
func (w *planState) heldDevices(f *minResources) map[string]resource.Vector {
	if f.held == nil {
		f.held = map[string]resource.Vector{}
		for _, other := range w.holds.Devices(f.holders...) {
			if f.held[other.Node] == nil {
				f.held[other.Node] = resource.Vector{}
			}
			f.held[other.Node].Add(other.Request, 1)
		}
	}
	return f.held
}

// devicesClaimed counts the devices behind an extended resource that the claims of pods would have, on the same basis
// as devicesNow. Claims that would not be allocated count with what they request.
func (w *planState) devicesClaimed(pods []*v1.Pod, name v1.ResourceName) int64 {
	class := w.backing(name)
	if class == "" || w.storage.stock == nil {
		return 0
	}
	claims := sets.New[types.NamespacedName]()
	for _, pod := range pods {
		for _, key := range deviceKeys(pod) {
			claims.Insert(key.device())
		}
	}
	count, untold, err := w.tx.DevicesAmong(class, claims.UnsortedList()...)
	if err != nil {
		return 0 // the filters report errors
	}
	var rest claimed
	for _, claim := range untold {
		rest.countDevices(claim)
	}
	return int64(count) + rest.devices[class]
}

// backing returns the device class that backs an extended resource; empty for none.
func (w *planState) backing(name v1.ResourceName) string {
	if w.storage.backing == nil {
		return ""
	}
	found, known := w.backingClasses[name]
	if !known {
		if class := w.storage.backing.GetDeviceClass(name); class != nil && schedutil.IsDRAExtendedResourceName(name) {
			found = class.Name
		}
		w.backingClasses[name] = found
	}
	return found
}

// claimLimit returns a message if members share a claim that cannot have as many users as the minimums of all gangs
// need; empty otherwise.
func (w *planState) claimLimit(a *gangstate.Attempt) string {
	naming := map[claimKey][]int{} // pending members that name a claim, by gang
	for i := range a.Gangs {
		for _, pod := range a.Gangs[i].Pending {
			for _, key := range deviceKeys(pod) {
				if naming[key] == nil {
					naming[key] = make([]int, len(a.Gangs))
				}
				naming[key][i]++
			}
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(naming), compareClaims) {
		users := w.reservedFor(key)
		if w.uses[key]+len(users) <= resourceapi.ResourceClaimReservedForMaxSize {
			continue
		}
		members, others := usersOf(a, key, users)
		more := 0
		for i, need := range a.Gangs {
			more += max(0, need.Min-(len(need.Pending)-naming[key][i]))
		}
		if more > 0 && members+more+others > resourceapi.ResourceClaimReservedForMaxSize {
			return textClaimLimit(key, members+more, others)
		}
	}
	return ""
}

func textClaimLimit(key claimKey, members, others int) string {
	beside := ""
	if others > 0 {
		beside = fmt.Sprintf(", and %d others use", others)
	}
	return fmt.Sprintf("%d members need ResourceClaim %s, which %d pods can use at most%s; "+
		"give each its own claim, by a ResourceClaimTemplate",
		members, key.device(), resourceapi.ResourceClaimReservedForMaxSize, beside)
}

// reservedFor returns the users of a claim.
func (w *planState) reservedFor(key claimKey) []resourceapi.ResourceClaimConsumerReference {
	if w.storage.devices == nil {
		return nil
	}
	claim, err := w.storage.devices.Get(key.device().Namespace, key.device().Name)
	if err != nil {
		return nil // the filters report it
	}
	return claim.Status.ReservedFor
}

// usersOf counts the placed members of an attempt that use a claim, and its users outside the attempt.
func usersOf(a *gangstate.Attempt, key claimKey,
	users []resourceapi.ResourceClaimConsumerReference) (members, others int) {
	ours := map[types.UID]bool{}
	for _, need := range a.Gangs {
		for _, pod := range need.Pending {
			ours[pod.UID] = true
		}
		for _, placed := range need.Placed {
			ours[placed.Pod.UID] = true
			if slices.Contains(deviceKeys(placed.Pod), key) {
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

// textShortDevices lists the devices that unplaced members claim, by device class, if nodes lacked any. A claim that
// members share counts once.
func (w *planState) textShortDevices(members []int) []string {
	if !w.lackingDevices || w.storage.devices == nil {
		return nil
	}
	counts, seen := map[string]int64{}, map[claimKey]bool{}
	for _, m := range members {
		pod := w.pods[m]
		for i := range pod.Spec.ResourceClaims {
			name := deviceClaim(pod, i)
			claim, err := w.storage.devices.Get(pod.Namespace, name)
			// the filters have reported errors
			if key := deviceKey(pod, name); err == nil && claim.Status.Allocation == nil && !seen[key] {
				seen[key] = true
				addRequests(counts, claim)
			}
		}
	}
	var parts []string
	for _, class := range sortedKeys(counts) {
		parts = append(parts, fmt.Sprintf("%d of device class %s", counts[class], class))
	}
	return parts
}

// lacks reports whether nodes lacked a resource, or devices of a class that backs it.
func (w *planState) lacks(name v1.ResourceName) bool {
	return w.lacking[name] || w.lackingDevices && w.backing(name) != ""
}

// addRequests counts the devices of a claim that is not allocated. Of alternatives the first counts; a request for all
// devices of a node counts as one.
func addRequests(counts map[string]int64, claim *resourceapi.ResourceClaim) {
	for _, request := range claim.Spec.Devices.Requests {
		switch {
		case request.Exactly != nil:
			class := request.Exactly.DeviceClassName
			counts[class] = resource.Plus(counts[class], max(1, request.Exactly.Count))
		case len(request.FirstAvailable) > 0:
			class := request.FirstAvailable[0].DeviceClassName
			counts[class] = resource.Plus(counts[class], max(1, request.FirstAvailable[0].Count))
		}
	}
}
