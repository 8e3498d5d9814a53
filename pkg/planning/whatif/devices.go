package whatif

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/pkg/planning/devicesimulation"
)

// Devices that a pod would be allocated are in no NodeInfo: kube-scheduler tracks them in claims. A transaction has an
// overlay over these. What an added pod takes, or a removed one frees, is only in the overlay, and gone when the
// transaction ends.

// DeviceOverlay returns the devices in their simulated state; nil if the profile does not filter by devices.
func (t *Transaction) DeviceOverlay() (*devicesimulation.Overlay, error) {
	simulator, err := t.hooks.devices()
	if err != nil || simulator == nil {
		return nil, err
	}
	if t.devices == nil {
		t.devices = simulator.Overlay()
		t.devices.Hold(t.held...)
	}
	return t.devices, nil
}

// devicesFor returns the overlay if a pod may need devices; nil if not.
func (t *Transaction) devicesFor(pod *v1.Pod) (*devicesimulation.Overlay, error) {
	overlay, err := t.DeviceOverlay()
	if overlay == nil || !overlay.MayNeedDevices(pod) {
		return nil, err
	}
	return overlay, nil
}

// HoldDevices keeps devices from the pods of the transaction: claims as they would be allocated to others. It must be
// called before any view is prepared.
func (t *Transaction) HoldDevices(claims ...*resourceapi.ResourceClaim) {
	t.held = append(t.held, claims...)
}

// Devices returns the claims that added pods would be allocated, by pod.
func (t *Transaction) Devices() map[types.UID][]*resourceapi.ResourceClaim {
	claims := map[types.UID][]*resourceapi.ResourceClaim{}
	for _, s := range t.log {
		if len(s.devices) > 0 {
			claims[s.info.GetPod().UID] = t.devices.Claims(s.devices)
		}
	}
	return claims
}

// claims is what the device filters read in the cycle state of a view.
type claims struct {
	mu sync.Mutex
	// pod is the pod whose claims they are, and version that of the overlay, when they were prepared.
	pod     types.UID
	version int
	status  *fwk.Status
}

// prepareClaims prepares the claims of a view's pod, if it may need devices.
func (t *Transaction) prepareClaims(ctx context.Context, v *View) *fwk.Status {
	overlay, err := t.devicesFor(v.Pod)
	if overlay == nil {
		return fwk.AsStatus(err)
	}
	shared, err := overlay.Shared(v.Pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	v.spreads = v.spreads || shared
	v.beyond.Insert(names.DynamicResources) // a removed pod may free a claim that is tied to another node
	v.claims = &claims{}
	return t.refreshClaims(ctx, v)
}

// refreshClaims prepares the claims of a view again if it has another pod now, or allocations have changed.
func (t *Transaction) refreshClaims(ctx context.Context, v *View) *fwk.Status {
	v.claims.mu.Lock()
	defer v.claims.mu.Unlock()
	if v.claims.pod != v.Pod.UID || v.claims.version != t.devices.Version() {
		v.claims.status = t.devices.Prepare(ctx, v.State, v.Pod)
		v.claims.pod, v.claims.version = v.Pod.UID, t.devices.Version()
		t.lastPrepared = v
	}
	return v.claims.status
}

// takeDevices takes the devices that a pod would be allocated on a node.
func (t *Transaction) takeDevices(ctx context.Context, pod *v1.Pod, node fwk.NodeInfo) (devicesimulation.Taken, error) {
	overlay, err := t.devicesFor(pod)
	if overlay == nil {
		return nil, err
	}
	var state fwk.CycleState
	if t.lastPrepared != nil && t.lastPrepared.claims.pod == pod.UID &&
		t.lastPrepared.claims.version == overlay.Version() {
		state = t.lastPrepared.State
	}
	return overlay.Take(ctx, state, pod, node)
}

// updateDevices removes a pod from the overlay, with the devices that it alone had; with back, it restores the pod.
func (t *Transaction) updateDevices(pod *v1.Pod, back bool) error {
	overlay, err := t.devicesFor(pod)
	if overlay == nil {
		return err
	}
	if back {
		overlay.Restore(pod)
		return nil
	}
	return overlay.Remove(pod)
}
