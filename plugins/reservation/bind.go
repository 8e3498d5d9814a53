package reservation

import (
	"context"
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// Reserve makes the pod use the best placement on its node.
func (pl *Reservation) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	c := cycleOf(state)
	if c == nil || len(c.slots[node]) == 0 {
		return nil
	}
	info, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("looking up node %s in the snapshot: %w", node, err))
	}
	slot, ok := pl.chooseSlot(c, state, pod, info)
	if !ok {
		return fwk.NewStatus(fwk.Unschedulable, "what is held for the pod on node "+node+" has been taken")
	}
	if slot != nil && !pl.reservations.Use(pod, node, slot.ID, c.demand) {
		return fwk.NewStatus(fwk.Unschedulable, "what is held for the pod on node "+node+" has been taken, or has ended")
	}
	return nil
}

// Unreserve makes the pod return what it uses; a reserve pod, its place. A pod that may have been bound before it was
// deleted has used up a single-use placement.
func (pl *Reservation) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if binding.LeftOpen(state) {
		pl.reservations.PodBound(pod)
	}
	pl.reservations.Release(pod)
}

// Bind writes the place of a reserve pod, with what other plugins write as a pod is bound. For other pods the next
// binder writes what they use as it binds them.
func (pl *Reservation) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	if reservepods.IsReservePod(pod) {
		notes := map[string]any{}
		for name, value := range binding.Annotations(state) {
			notes[name] = value
		}
		if len(notes) > 0 {
			if err := pl.writeAnnotations(ctx, pod, notes); err != nil {
				return fwk.AsStatus(fmt.Errorf("annotating reserve pod %s/%s: %w", pod.Namespace, pod.Name, err))
			}
		}
		return fwk.AsStatus(pl.reservations.Bind(ctx, pod, node))
	}
	value := ""
	if a, ok := pl.reservations.Allocation(pod); ok {
		value = a.String()
	} else if _, named := reservationstate.NamedBy(pod); named {
		return fwk.NewStatus(fwk.Unschedulable, "the Reservation that the pod asks for ended as it was placed")
	}
	now, has := pod.Annotations[v1alpha1.ReservationAllocatedAnnotation]
	switch {
	case value == now && (has || value == ""):
	case value != "" && pl.notes():
		binding.Annotate(state, v1alpha1.ReservationAllocatedAnnotation, value)
	default:
		var uses any // nothing, which removes the annotation
		if value != "" {
			uses = value
		}
		if err := pl.writeAnnotations(ctx, pod, map[string]any{v1alpha1.ReservationAllocatedAnnotation: uses}); err != nil {
			return fwk.AsStatus(fmt.Errorf("writing annotation %s on pod %s/%s: %w", v1alpha1.ReservationAllocatedAnnotation,
				pod.Namespace, pod.Name, err))
		}
	}
	return fwk.NewStatus(fwk.Skip)
}

// writeAnnotations writes annotations of a pod; one that is nil is removed.
func (pl *Reservation) writeAnnotations(ctx context.Context, pod *v1.Pod, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": annotations}})
	if err != nil {
		return err
	}
	_, err = pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
		patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the binder reports it
	}
	return err
}

// PostBind makes the pod's allocation permanent: the watch may never show the pod on its node. It removes a reserve
// pod: what it looked for is held.
func (pl *Reservation) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if reservepods.IsReservePod(pod) {
		pl.reservations.RemoveReservePod(pod)
		return
	}
	pl.reservations.PodBound(pod)
}
