package gpushare

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
)

// Reserve chooses the card. In the cycle of a native pod group it only rehearses, and
// chooses nothing.
func (pl *GPUShare) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	memory := requested(pod)
	if memory == 0 || state.IsPodGroupSchedulingCycle() {
		return nil
	}
	info, err := pl.handle.SnapshotSharedLister().NodeInfos().Get(node)
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("looking up node %s in the snapshot: %w", node, err))
	}
	sizes := pl.cards(info).sizes
	index, _, ok := pl.choose(&cycle{memory: memory, but: pod.UID}, state, pod, info, sizes,
		pl.reservedSince(info, len(sizes), pod.UID)...)
	if !ok {
		// Something else has come or changed since the filters ran. An error is retried by
		// itself; a refusal would wait for an event that may have come already.
		return fwk.AsStatus(fmt.Errorf("choosing a GPU card on node %s: none has %d MiB left", node, memory))
	}
	r := reservation{node: node, card: index, memory: memory}
	if pl.ledger.put(pod.UID, r); pl.notes() {
		for name, value := range r.annotations() {
			binding.Annotate(state, name, value)
		}
	}
	return nil
}

// annotations are what a pod says of its card.
func (r reservation) annotations() map[string]string {
	return map[string]string{
		v1alpha1.GPUCardAnnotation:       strconv.Itoa(r.card),
		v1alpha1.GPUCardMemoryAnnotation: strconv.FormatInt(r.memory, 10),
	}
}

// Unreserve gives the card back. What PreBind has written stays: it does not count for a pod
// that is not bound, and the next attempt overwrites it.
func (pl *GPUShare) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	if !state.IsPodGroupSchedulingCycle() {
		pl.ledger.release(pod.UID, node)
	}
}

// PreBindPreFlight reports whether there is a card to record before the pod is bound: the binder may do so with the
// binding. A call that is answered late cannot record the card of an earlier attempt then.
func (pl *GPUShare) PreBindPreFlight(_ context.Context, _ fwk.CycleState, pod *v1.Pod,
	_ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if requested(pod) == 0 || pl.notes() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreBindPreFlightResult{AllowParallel: true}, nil
}

// PreBind records the card on the pod. It writes even where the pod seems to have the
// same annotation already: that may be of an attempt before the last.
func (pl *GPUShare) PreBind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	if requested(pod) == 0 || pl.notes() {
		return nil // where PreBindPreFlight was not called
	}
	r, ok := pl.ledger.reservationOf(pod.UID)
	if !ok || r.node != node {
		return fwk.AsStatus(fmt.Errorf("recording the GPU card of pod %s: none is reserved on node %s", klog.KObj(pod), node))
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         pod.UID, // the API server refuses the patch for a pod of the same name
		"annotations": r.annotations(),
	}})
	if err == nil {
		_, err = pl.handle.ClientSet().CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType,
			patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fwk.AsStatus(fmt.Errorf("recording the GPU card of pod %s: %w", klog.KObj(pod), err))
	}
	return nil
}
