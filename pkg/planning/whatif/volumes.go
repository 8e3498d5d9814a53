package whatif

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"
)

// Volumes that a pod would be bound to are in no NodeInfo: kube-scheduler keeps them in the caches of its VolumeBinding
// plugin, where Reserve assumes them. A transaction does the same for the pods that it adds, and reverts it in Rollback
// and Discard. That is sound because these caches are read and added to on the scheduling goroutine only, in Filter and
// Reserve. Binding goroutines revert only volumes that a transaction never chose, since they were assumed for another
// claim.

// volumesOf returns the plugin of a profile; nil if it is not enabled.
func volumesOf(fw framework.Framework) *volumebinding.VolumeBinding {
	for _, plugin := range fw.EnqueueExtensions() {
		if found, ok := plugin.(*volumebinding.VolumeBinding); ok {
			return found
		}
	}
	return nil
}

// MarkContending names pods with claims that wait for their first consumer, and whose volumes others of the transaction
// may want: when such a pod is added, its volumes are taken. For other pods that costs nothing.
func (t *Transaction) MarkContending(pods ...types.UID) { t.contending.Insert(pods...) }

// ViewFor returns a view for another pod that differs from the view's own only by its claims. Waiting claims are looked
// up again, beside what is taken by now; the original view sees the same from then on. Any status but success is the
// plugin's: rejected, or an error.
func (t *Transaction) ViewFor(ctx context.Context, v *View, pod *v1.Pod) (*View, *fwk.Status) {
	if t.hooks.volumes != nil && t.contending.Has(pod.UID) {
		if _, status := t.hooks.volumes.PreFilter(ctx, v.State, pod, nil); !status.IsSuccess() && !status.IsSkip() {
			return nil, status
		}
	}
	own := *v
	own.Pod = pod
	if own.claims != nil {
		if status := t.refreshClaims(ctx, &own); !status.IsSuccess() {
			return nil, status
		}
	}
	return &own, nil
}

// takeVolumes assumes the volumes that a pod would be bound to on a node. It returns nil for none, including if the
// node no longer has any, which the pod's own cycle finds out.
func (t *Transaction) takeVolumes(ctx context.Context, pod *v1.Pod, node *v1.Node) (*volumebinding.PodVolumes, error) {
	if t.hooks.volumes == nil || !t.contending.Has(pod.UID) {
		return nil, nil
	}
	logger, binder := klog.FromContext(ctx), t.hooks.volumes.Binder
	claims, err := binder.GetPodVolumeClaims(logger, pod)
	if err != nil {
		return nil, fmt.Errorf("reading claims of pod %s: %w", klog.KObj(pod), err)
	}
	chosen, reasons, err := binder.FindPodVolumes(logger, pod, claims, node)
	if err != nil {
		return nil, fmt.Errorf("choosing volumes of pod %s on node %s: %w", klog.KObj(pod), node.Name, err)
	}
	if len(reasons) > 0 || len(chosen.StaticBindings)+len(chosen.DynamicProvisions) == 0 {
		return nil, nil
	}
	if _, err := binder.AssumePodVolumes(logger, pod, node.Name, chosen); err != nil {
		return nil, fmt.Errorf("taking volumes of pod %s on node %s: %w", klog.KObj(pod), node.Name, err)
	}
	return chosen, nil
}

// undoTaken returns the volumes and devices that a step took.
func (t *Transaction) undoTaken(s step) {
	if s.volumes != nil {
		t.hooks.volumes.Binder.RevertAssumedPodVolumes(s.volumes)
	}
	if len(s.devices) > 0 {
		t.devices.Undo(s.devices)
	}
}
