package whatif

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/lockstep-sh/lockstep/plugins/devices"
)

// Devices that a pod would be allocated are in no NodeInfo either: kube-scheduler tracks them in claims. A transaction
// has an overlay over these. What an added pod takes, or a removed one frees, is there and nowhere else, so that
// nothing of it is left when the transaction ends.

// devicesFor returns the overlay, if a pod may need devices; nil if not, and where the profile knows of none.
func (t *Transaction) devicesFor(pod *v1.Pod) (*devices.Overlay, error) {
	if t.hooks.devices == nil {
		return nil, nil
	}
	simulator, err := t.hooks.devices()
	if err != nil || !simulator.Wants(pod) {
		return nil, err
	}
	return t.overlay(simulator), nil
}

func (t *Transaction) overlay(simulator *devices.Simulator) *devices.Overlay {
	if t.devices == nil {
		t.devices = simulator.Overlay()
		t.devices.Hold(t.held...)
	}
	return t.devices
}

// DevicesLeft returns at most how many more devices of a class could be allocated on a node. bounded is false where that cannot be
// counted, as with devices that several nodes reach.
func (t *Transaction) DevicesLeft(class string, node int) (left int, bounded bool, err error) {
	overlay, err := t.anyDevices()
	if overlay == nil {
		return 0, false, err
	}
	return overlay.Left(class, t.nodes[node].Node().Name)
}

// DevicesAmong counts the devices of a class among those that claims would have, each once. It returns the claims, too, of which that
// cannot be told: those that would not be allocated, and all where DevicesLeft is not bounded.
func (t *Transaction) DevicesAmong(class string, claims ...types.NamespacedName) (count int, untold []*resourceapi.ResourceClaim, err error) {
	overlay, err := t.anyDevices()
	if overlay == nil {
		return 0, nil, err
	}
	return overlay.Among(class, claims...)
}

// anyDevices returns the overlay; nil where the profile knows of no devices.
func (t *Transaction) anyDevices() (*devices.Overlay, error) {
	if t.hooks.devices == nil {
		return nil, nil
	}
	simulator, err := t.hooks.devices()
	if err != nil || simulator == nil {
		return nil, err
	}
	return t.overlay(simulator), nil
}

// Hold keeps devices from the pods of the transaction: claims as they would be allocated to others. It has to be
// called before any pod is looked at.
func (t *Transaction) Hold(claims ...*resourceapi.ResourceClaim) { t.held = append(t.held, claims...) }

// Devices returns the claims that a pod would be allocated that was added.
func (t *Transaction) Devices(pod types.UID) []*resourceapi.ResourceClaim {
	if t.devices == nil {
		return nil
	}
	for i := len(t.log) - 1; i >= 0; i-- {
		if s := t.log[i]; s.info.GetPod().UID == pod && !s.removed {
			return t.devices.Claims(s.devices)
		}
	}
	return nil
}

// claims are what the filters of devices go by, in the cycle state of a view.
type claims struct {
	mu sync.Mutex
	// pod is the pod whose claims they are, and version that of the overlay, when they were looked up.
	pod     types.UID
	version int
	status  *fwk.Status
}

// lookUp puts into a view the claims of its pod, and what is left for them, if it may need devices.
func (t *Transaction) lookUp(ctx context.Context, v *View) *fwk.Status {
	overlay, err := t.devicesFor(v.Pod)
	if overlay == nil {
		return fwk.AsStatus(err)
	}
	shared, err := overlay.Shared(v.Pod)
	if err != nil {
		return fwk.AsStatus(err)
	}
	v.spreads = v.spreads || shared
	if v.known {
		v.beyond.Insert(names.DynamicResources) // a pod that goes may leave a claim that is tied to another node
	}
	v.claims = &claims{}
	return t.claimsOf(ctx, v)
}

// claimsOf looks the claims of a view up again if it is another pod's now, or what is allocated has changed.
func (t *Transaction) claimsOf(ctx context.Context, v *View) *fwk.Status {
	v.claims.mu.Lock()
	defer v.claims.mu.Unlock()
	if v.claims.pod != v.Pod.UID || v.claims.version != t.devices.Version() {
		v.claims.status = t.devices.Prepare(ctx, v.State, v.Pod)
		v.claims.pod, v.claims.version = v.Pod.UID, t.devices.Version()
		t.asked = v
	}
	return v.claims.status
}

// takeDevices takes the devices that a pod would be allocated on a node.
func (t *Transaction) takeDevices(ctx context.Context, pod *v1.Pod, node fwk.NodeInfo) (devices.Taken, error) {
	overlay, err := t.devicesFor(pod)
	if overlay == nil {
		return nil, err
	}
	var state fwk.CycleState
	if t.asked != nil && t.asked.claims.pod == pod.UID && t.asked.claims.version == overlay.Version() {
		state = t.asked.State
	}
	return overlay.Take(ctx, state, pod, node)
}

// leave takes in that a pod is gone, with the devices that it alone had; with back, that it is there again.
func (t *Transaction) leave(pod *v1.Pod, back bool) error {
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
