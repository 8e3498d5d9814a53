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

// Volumes that a pod would be bound to are in no NodeInfo: kube-scheduler keeps them in
// the caches of its VolumeBinding plugin, where Reserve assumes them. A transaction does
// the same for the pods that it adds, and takes it back in Rollback and Discard. That is
// sound because these caches are read and added to on the scheduling goroutine only: in
// Filter and in Reserve. What binding goroutines take back is their own: volumes that a
// transaction never chose, since they were assumed for another claim.

// volumesOf finds the plugin in a profile; nil where it is not enabled.
func volumesOf(fw framework.Framework) *volumebinding.VolumeBinding {
	for _, plugin := range fw.EnqueueExtensions() {
		if found, ok := plugin.(*volumebinding.VolumeBinding); ok {
			return found
		}
	}
	return nil
}

// Contend names pods with claims that wait for their first consumer, and whose volumes may
// be those that others of the transaction want: when such a pod is added, its volumes are
// taken. For other pods that costs nothing.
func (t *Transaction) Contend(pods ...types.UID) { t.contending.Insert(pods...) }

// For returns a view for another pod that scheduling can tell from the view's own only by
// its claims. Claims that wait are looked up anew, beside what is taken by now; the view
// that it was made from sees the same from then on. A status that is not a success is the
// plugin's: rejected, or an error.
func (t *Transaction) For(ctx context.Context, v *View, pod *v1.Pod) (*View, *fwk.Status) {
	if t.hooks.volumes != nil && t.contending.Has(pod.UID) {
		if _, status := t.hooks.volumes.PreFilter(ctx, v.State, pod, nil); !status.IsSuccess() && !status.IsSkip() {
			return nil, status
		}
	}
	own := *v
	own.Pod = pod
	if own.claims != nil {
		if status := t.claimsOf(ctx, &own); !status.IsSuccess() {
			return nil, status
		}
	}
	return &own, nil
}

// take assumes the volumes that a pod would be bound to on a node. It returns nil for none,
// also where the node has none any more, which the pod's own cycle finds out.
func (t *Transaction) take(ctx context.Context, pod *v1.Pod, node *v1.Node) (*volumebinding.PodVolumes, error) {
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

// giveBack gives back the volumes and devices that a step took.
func (t *Transaction) giveBack(s step) {
	if s.volumes != nil {
		t.hooks.volumes.Binder.RevertAssumedPodVolumes(s.volumes)
	}
	if len(s.devices) > 0 {
		t.devices.GiveBack(s.devices)
	}
}
