package devicesimulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/deviceclaims"
)

// Overlay is the allocation that would result if some pods came and others left. It is not safe for concurrent changes;
// Prepare may run in parallel between them.
type Overlay struct {
	s *Simulator
	// version changes with every change.
	version int
	// taken are the claims that pods took, as they would be allocated.
	taken map[types.UID]*resourceapi.ResourceClaim
	// left are the pods that left.
	left sets.Set[types.UID]
	// freed are the claims that lose their allocation with the pods that left.
	freed map[types.UID]*resourceapi.ResourceClaim
	// signalled are the claims that the plugin reserves during Take.
	signalled []types.UID
	// allocated are the devices that claims have, nil if unknown; counts are the counts by class. Both are computed when
	// first needed.
	allocated sets.Set[structured.DeviceID]
	counts    map[string]*count
}

// Overlay returns an overlay without changes.
func (s *Simulator) Overlay() *Overlay {
	return &Overlay{s: s, taken: map[types.UID]*resourceapi.ResourceClaim{}, left: sets.New[types.UID](),
		freed: map[types.UID]*resourceapi.ResourceClaim{}}
}

// Hold takes what is held for others: claims as they would be allocated to the holders.
func (o *Overlay) Hold(claims ...*resourceapi.ResourceClaim) {
	for _, claim := range claims {
		o.taken[claim.UID] = claim
		o.version++
	}
}

// MayNeedDevices reports whether a pod may need devices: by claims, or by extended resources that a DeviceClass backs.
func (o *Overlay) MayNeedDevices(pod *v1.Pod) bool {
	backed := func(c v1.Container) bool {
		for name, amount := range c.Resources.Requests {
			if o.Backing(name) != "" && !amount.IsZero() {
				return true
			}
		}
		return false
	}
	return len(pod.Spec.ResourceClaims) > 0 || slices.ContainsFunc(pod.Spec.Containers, backed) ||
		slices.ContainsFunc(pod.Spec.InitContainers, backed)
}

// Backing is [Backing] for the devices of the overlay.
func (o *Overlay) Backing(name v1.ResourceName) string { return Backing(o.s.real, name) }

// Backing returns the DeviceClass that backs an extended resource; empty for none. Nodes may still have the resource
// from a device plugin.
func Backing(manager fwk.SharedDRAManager, name v1.ResourceName) string {
	if !schedutil.IsDRAExtendedResourceName(name) {
		return ""
	}
	class := manager.DeviceClassResolver().GetDeviceClass(name)
	if class == nil {
		return ""
	}
	return class.Name
}

// Claims returns the claims that a pod took, as they would be allocated.
func (o *Overlay) Claims(taken Taken) []*resourceapi.ResourceClaim {
	var claims []*resourceapi.ResourceClaim
	for _, uid := range taken {
		if claim := o.taken[uid]; claim != nil {
			claims = append(claims, claim)
		}
	}
	return claims
}

// Version returns a number that changes whenever the resulting allocation does.
func (o *Overlay) Version() int { return o.version }

// Shared reports whether more than one node can reach some of the devices that a pod may get.
func (o *Overlay) Shared(pod *v1.Pod) (bool, error) {
	classes, err := o.classesOf(pod)
	if err != nil {
		return false, err
	}
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	list, err := o.s.stock.slices()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list, func(slice *resourceapi.ResourceSlice) bool {
		return slice.Spec.NodeName == nil && (len(slice.Spec.SharedCounters) > 0 ||
			slices.ContainsFunc(classes,
				func(class *resourceapi.DeviceClass) bool {
					return len(o.s.stock.selectDevices(match{slice, class}).ids) > 0
				}))
	}), nil
}

// classesOf returns the existing classes of the devices that a pod may get.
func (o *Overlay) classesOf(pod *v1.Pod) ([]*resourceapi.DeviceClass, error) {
	claims, err := o.claimsOf(pod)
	if err != nil {
		return nil, err
	}
	named := sets.New[string]()
	for _, claim := range claims {
		for _, request := range claim.Spec.Devices.Requests {
			if request.Exactly != nil {
				named.Insert(request.Exactly.DeviceClassName)
			}
			for i := range request.FirstAvailable {
				named.Insert(request.FirstAvailable[i].DeviceClassName)
			}
		}
	}
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			for name := range containers[i].Resources.Requests {
				if class := o.Backing(name); class != "" {
					named.Insert(class)
				}
			}
		}
	}
	var classes []*resourceapi.DeviceClass
	for name := range named {
		class, err := o.s.real.DeviceClasses().Get(name)
		switch {
		case apierrors.IsNotFound(err): // the plugin reports it
		case err != nil:
			return nil, fmt.Errorf("reading device class %s: %w", name, err)
		default:
			classes = append(classes, class)
		}
	}
	return classes, nil
}

// withOverlay calls a function while the plugin sees devices as the overlay does.
func (o *Overlay) withOverlay(ask func()) {
	o.s.mu.Lock()
	defer o.s.mu.Unlock()
	before := o.s.manager.claims
	o.s.manager.claims = tracker{ResourceClaimTracker: before, o: o}
	defer func() { o.s.manager.claims = before }()
	ask()
}

// Prepare runs the plugin's PreFilter on a pod: filters use the resulting state. Any status but success is the plugin's
// own: rejected, or an error.
func (o *Overlay) Prepare(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (status *fwk.Status) {
	o.withOverlay(func() { _, status = o.s.plugin.PreFilter(ctx, state, pod, nil) })
	if status.IsSuccess() || status.IsSkip() {
		return nil
	}
	return status.WithPlugin(names.DynamicResources)
}

// Fits returns the plugin's status for whether the devices that a pod needs are on a node. state must have been
// prepared for the pod since the last change.
func (o *Overlay) Fits(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	return o.s.plugin.Filter(ctx, state, pod, node)
}

// Taken are the claims that a pod took on a node.
type Taken []types.UID

// Take allocates to a pod what the plugin would on a node. state must have been prepared for the pod since the last
// change, or be nil. It takes nothing if that is no longer possible, which the pod's own cycle finds out, and for
// claims that are allocated or about to be.
func (o *Overlay) Take(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (Taken, error) {
	var status *fwk.Status
	if state == nil {
		state = framework.NewCycleState()
		status = o.Prepare(ctx, state, pod)
	}
	if status.IsSuccess() {
		status = o.s.plugin.Filter(ctx, state, pod, node)
	}
	if status.IsRejected() {
		return nil, nil
	}
	if status.IsSuccess() {
		o.signalled = nil
		o.withOverlay(func() { status = o.s.plugin.Reserve(ctx, state, pod, node.Node().Name) })
	}
	if !status.IsSuccess() {
		o.Undo(o.signalled)
		return nil, fmt.Errorf("choosing devices of pod %s on node %s: %w", klog.KObj(pod),
			node.Node().Name, status.AsError())
	}
	taken := Taken(o.signalled)
	o.signalled = nil
	if len(taken) > 0 {
		o.version++
	}
	return taken, nil
}

// Undo undoes Take.
func (o *Overlay) Undo(taken Taken) {
	for _, uid := range taken {
		delete(o.taken, uid)
		o.version++
	}
}

// Remove removes a pod in the overlay. Claims that no other pod has reserved lose their allocation: those created for
// the pod are deleted, others deallocated.
func (o *Overlay) Remove(pod *v1.Pod) error {
	claims, err := o.claimsOf(pod)
	if err != nil {
		return err
	}
	o.left.Insert(pod.UID)
	for _, claim := range claims {
		if claim.Status.Allocation != nil && !slices.ContainsFunc(claim.Status.ReservedFor, o.stays) {
			o.freed[claim.UID] = claim
			o.version++
		}
	}
	return nil
}

// Restore undoes Remove.
func (o *Overlay) Restore(pod *v1.Pod) {
	o.left.Delete(pod.UID)
	maps.DeleteFunc(o.freed, func(_ types.UID, claim *resourceapi.ResourceClaim) bool {
		back := slices.ContainsFunc(claim.Status.ReservedFor, o.stays)
		if back {
			o.version++
		}
		return back
	})
}

// stays reports whether a consumer of a claim has not left.
func (o *Overlay) stays(consumer resourceapi.ResourceClaimConsumerReference) bool {
	return !o.left.Has(consumer.UID)
}

// claimsOf returns the existing claims that a pod uses.
func (o *Overlay) claimsOf(pod *v1.Pod) ([]*resourceapi.ResourceClaim, error) {
	var claims []*resourceapi.ResourceClaim
	for _, name := range deviceclaims.NamesOf(pod) {
		claim, err := o.s.real.ResourceClaims().Get(pod.Namespace, name)
		switch {
		case errors.Is(err, assumecache.ErrNotFound):
		case err != nil:
			return nil, fmt.Errorf("reading claim %s/%s of pod %s: %w", pod.Namespace, name, pod.Name, err)
		default:
			claims = append(claims, claim)
		}
	}
	return claims, nil
}
