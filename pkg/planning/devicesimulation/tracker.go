package devicesimulation

import (
	"errors"
	"iter"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/utils/ptr"
)

// tracker is the claim tracker under an overlay: what the overlay has taken looks allocated, what it has freed does
// not. List is unchanged: the plugin uses it to find a claim of the pod that it prepares.
type tracker struct {
	fwk.ResourceClaimTracker
	o *Overlay
}

var _ fwk.ResourceClaimTracker = tracker{}

// Get returns a claim in its simulated state.
func (t tracker) Get(namespace, name string) (*resourceapi.ResourceClaim, error) {
	claim, err := t.ResourceClaimTracker.Get(namespace, name)
	if err != nil {
		return nil, err
	}
	if taken, ok := t.o.taken[claim.UID]; ok {
		return taken, nil
	}
	_, freed := t.o.freed[claim.UID]
	pending := t.GetPendingAllocation(claim.UID)
	if !freed && pending == nil {
		return claim, nil
	}
	claim = claim.DeepCopy()
	if freed {
		claim.Status = resourceapi.ResourceClaimStatus{}
	} else {
		claim.Status.Allocation = pending // it is being written to the API server
	}
	return claim, nil
}

// ListAllAllocatedDevices returns the devices that claims would have exclusively.
func (t tracker) ListAllAllocatedDevices() (sets.Set[structured.DeviceID], error) {
	ids, err := t.ResourceClaimTracker.ListAllAllocatedDevices()
	if err != nil {
		return nil, err
	}
	for _, claim := range t.o.freed {
		for result := range allocated(claim) {
			ids.Delete(idOf(result))
		}
	}
	for _, claim := range t.o.taken {
		for result := range allocated(claim) {
			ids.Insert(idOf(result))
		}
	}
	return ids, nil
}

// GatherAllocatedState returns what claims would have, whole devices and shares.
func (t tracker) GatherAllocatedState() (*structured.AllocatedState, error) {
	state, err := t.ResourceClaimTracker.GatherAllocatedState()
	if err != nil {
		return nil, err
	}
	shares := utilfeature.DefaultFeatureGate.Enabled(features.DRAConsumableCapacity)
	for _, claim := range t.o.freed {
		for result := range allocated(claim) {
			if id := idOf(result); shares && result.ShareID != nil {
				state.AllocatedSharedDeviceIDs.Delete(structured.MakeSharedDeviceID(id, result.ShareID))
				state.AggregatedCapacity.Remove(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			} else {
				state.AllocatedDevices.Delete(id)
			}
		}
	}
	for _, claim := range t.o.taken {
		for result := range allocated(claim) {
			if id := idOf(result); shares && result.ShareID != nil {
				state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, result.ShareID))
				state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, result.ConsumedCapacity))
			} else {
				state.AllocatedDevices.Insert(id)
			}
		}
	}
	return state, nil
}

// allocated yields the part of a claim's allocation that counts. Admin access takes nothing from others.
func allocated(claim *resourceapi.ResourceClaim) iter.Seq[*resourceapi.DeviceRequestAllocationResult] {
	return func(yield func(*resourceapi.DeviceRequestAllocationResult) bool) {
		if claim.Status.Allocation == nil {
			return
		}
		results := claim.Status.Allocation.Devices.Results
		for i := range results {
			if !ptr.Deref(results[i].AdminAccess, false) && !yield(&results[i]) {
				return
			}
		}
	}
}

func idOf(result *resourceapi.DeviceRequestAllocationResult) structured.DeviceID {
	return structured.MakeDeviceID(result.Driver, result.Pool, result.Device)
}

// SignalClaimPendingAllocation takes a claim in the overlay.
func (t tracker) SignalClaimPendingAllocation(uid types.UID, claim *resourceapi.ResourceClaim) error {
	t.o.taken[uid] = claim
	t.o.signalled = append(t.o.signalled, uid)
	return nil
}

// errNotSimulated is returned to the plugin for calls outside PreFilter, Filter and Reserve.
var errNotSimulated = errors.New("nothing is allocated in a what-if")

// AssumeClaimAfterAPICall is never called.
func (t tracker) AssumeClaimAfterAPICall(*resourceapi.ResourceClaim) error { return errNotSimulated }

// AssumedClaimRestore is never called.
func (t tracker) AssumedClaimRestore(string, string) {}

// MaybeRemoveClaimPendingAllocation is never called.
func (t tracker) MaybeRemoveClaimPendingAllocation(types.UID, bool) bool { return false }
