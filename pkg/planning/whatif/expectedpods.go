package whatif

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// A PreFilter plugin that returns Skip says that nothing in the snapshot matters to a pod: for example, no other pod
// keeps it away by anti-affinity, or has its ReadWriteOncePod claim. It does not see pods added later, so in a
// transaction that may be wrong. If plugins skip, they run again with the pods that may be added in the snapshot; then
// these are removed from their state.

// ExpectPod announces a pod that may be added, and that others may have to keep away from. It must be called before the
// views of those are prepared.
func (t *Transaction) ExpectPod(info *framework.PodInfo) { t.expected = append(t.expected, info) }

// stateBesideExpected returns the state of a pod in which no plugin has skipped that the expected pods matter to. It
// returns nil if a plugin rejects the pod beside all of them, since it may not beside some.
func (t *Transaction) stateBesideExpected(ctx context.Context, pod *v1.Pod,
	holders []hold.Holder) (state fwk.CycleState, err error) {
	snapshot, err := snapshotOf(t.fw)
	if err != nil {
		return nil, err
	}
	var assumed []*framework.PodInfo
	forget := func() (err error) {
		for _, info := range slices.Backward(assumed) {
			err = errors.Join(err, snapshot.ForgetPod(klog.FromContext(ctx), info.Pod))
		}
		return err
	}
	for i, info := range t.expected {
		placed := withNode(info, t.nodeFor(info, i).Node().Name)
		dropUsedClaims(snapshot, placed.Pod)
		if err := snapshot.AssumePod(placed); err != nil {
			return nil, errors.Join(fmt.Errorf("assuming pod %s in the snapshot: %w", klog.KObj(info.Pod), err), forget())
		}
		assumed = append(assumed, placed)
	}
	state = newState(holders)
	_, status, _ := t.fw.RunPreFilterPlugins(ctx, state, pod)
	if err := forget(); err != nil {
		return nil, fmt.Errorf("forgetting pods in the snapshot: %w", err)
	}
	if status.IsRejected() {
		return nil, nil
	}
	for _, info := range slices.Backward(assumed) {
		if status.IsSuccess() {
			i, _ := t.Index(info.Pod.Spec.NodeName)
			status = correctingFewest(state, func() *fwk.Status {
				return t.fw.RunPreFilterExtensionRemovePod(ctx, state, pod, info, t.nodes[i])
			})
		}
	}
	if !status.IsSuccess() {
		return nil, fmt.Errorf("preparing pod %s beside those that may come: %w", klog.KObj(pod), status.AsError())
	}
	return state, nil
}

// dropUsedClaims drops the volumes of a pod whose claim another pod in the snapshot uses. Plugins count a used claim
// once, but subtract it for each pod: only the first pod may count.
func dropUsedClaims(snapshot *cache.Snapshot, pod *v1.Pod) {
	pod.Spec.Volumes = slices.DeleteFunc(slices.Clone(pod.Spec.Volumes), func(volume v1.Volume) bool {
		claim := volume.PersistentVolumeClaim
		return claim != nil &&
			snapshot.StorageInfos().IsPVCUsedByPods(framework.GetNamespacedName(pod.Namespace, claim.ClaimName))
	})
}

// nodeFor returns a node on which a pod matters to others: one with the labels of its anti-affinity, if any. It
// searches from a node number on, so that pods are spread: a pod is quickly removed from a node with few others.
func (t *Transaction) nodeFor(info *framework.PodInfo, from int) fwk.NodeInfo {
	for i := range t.nodes {
		node := t.nodes[(from+i)%len(t.nodes)]
		if !slices.ContainsFunc(info.GetRequiredAntiAffinityTerms(), func(term fwk.AffinityTerm) bool {
			_, ok := node.Node().Labels[term.TopologyKey]
			return !ok
		}) {
			return node
		}
	}
	return t.nodes[0]
}

// snapshotOf returns kube-scheduler's own snapshot. It fails if a profile has another.
func snapshotOf(fw framework.Framework) (*cache.Snapshot, error) {
	snapshot, ok := fw.SnapshotSharedLister().(*cache.Snapshot)
	if !ok {
		return nil, fmt.Errorf("assuming pods in the snapshot: want *cache.Snapshot, got %T", fw.SnapshotSharedLister())
	}
	return snapshot, nil
}
