package whatif

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// Fits runs the filters for a view on a node, as the scheduling cycle does: counting nominated
// pods of equal or higher priority, and again without them. kube-scheduler counts those that
// are nominated to the node itself. Where plugins with hooks judge nodes by pods on others,
// all count: room that is not on any node, such as seats of a licence, would go to the first
// pod that comes between an eviction and the placement that it was for.
func (t *Transaction) Fits(ctx context.Context, v *View, node int) *fwk.Status {
	if v.claims != nil {
		if status := t.claimsOf(ctx, v); !status.IsSuccess() {
			return status
		}
	}
	info := t.nodes[node]
	if nominated := t.nominated(v.Pod, info); len(nominated) > 0 || v.beside != nil {
		if status := t.fitsBeside(ctx, v, info, nominated); !status.IsSuccess() {
			return status
		}
	}
	return t.judge(ctx, v.State, v.Pod, info)
}

// fitsBeside returns what the filters say where nominated pods are on their nodes already.
func (t *Transaction) fitsBeside(ctx context.Context, v *View, info fwk.NodeInfo, nominated []fwk.PodInfo) *fwk.Status {
	state := v.beside
	if state == nil {
		state = v.State
	}
	if len(nominated) > 0 {
		info, state = info.Snapshot(), state.Clone()
	}
	for _, p := range nominated {
		info.AddPodInfo(p)
		status := keepingFewest(state, func() *fwk.Status {
			return t.fw.RunPreFilterExtensionAddPod(ctx, state, v.Pod, p, info)
		})
		if status.IsSuccess() && !v.counted.Has(p.GetPod().UID) {
			status = t.hooks.added(ctx, state, v.Pod, p, info)
		}
		if !status.IsSuccess() {
			return fwk.AsStatus(fmt.Errorf("counting nominated pod %s: %w", klog.KObj(p.GetPod()), status.AsError()))
		}
	}
	return t.judge(ctx, state, v.Pod, info)
}

// judge asks the filters, then the hooks.
func (t *Transaction) judge(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	if status := t.fw.RunFilterPlugins(ctx, state, pod, info); !status.IsSuccess() {
		return status
	}
	return t.hooks.fits(ctx, state, pod, info)
}

// nominated lists the pods that are nominated to a node and that a pod has to make room for.
func (t *Transaction) nominated(pod *v1.Pod, info fwk.NodeInfo) []fwk.PodInfo {
	return slices.DeleteFunc(t.fw.NominatedPodsForNode(info.Node().Name), func(p fwk.PodInfo) bool {
		return !t.yields(pod, p.GetPod())
	})
}

// yields reports whether a pod has to make room for one that is nominated.
func (t *Transaction) yields(pod, nominated *v1.Pod) bool {
	return nominated.UID != pod.UID && !t.own.Has(nominated.UID) && corev1helpers.PodPriority(nominated) >= corev1helpers.PodPriority(pod)
}

// nominee is a pod that is nominated to a node.
type nominee struct {
	info fwk.PodInfo
	node int
}

func (t *Transaction) listNominees() (nominees []nominee) {
	for i, node := range t.nodes {
		for _, p := range t.fw.NominatedPodsForNode(node.Node().Name) {
			nominees = append(nominees, nominee{info: p, node: i})
		}
	}
	return nominees
}

// countNominees makes the state of a view in which the nominated pods that it has to make room
// for have come to their nodes, as hooks see it. The framework's own plugins see those on the
// node that they judge, as in kube-scheduler.
func (t *Transaction) countNominees(ctx context.Context, v *View) error {
	if len(t.hooks.roaming(v.State)) == 0 {
		return nil
	}
	for _, n := range t.nominees() {
		if !t.yields(v.Pod, n.info.GetPod()) {
			continue
		}
		if v.beside == nil {
			v.beside, v.counted = v.State.Clone(), sets.New[types.UID]()
		}
		node := t.nodes[n.node].Snapshot()
		node.AddPodInfo(n.info)
		if status := t.hooks.added(ctx, v.beside, v.Pod, n.info, node); !status.IsSuccess() {
			return fmt.Errorf("counting nominated pod %s: %w", klog.KObj(n.info.GetPod()), status.AsError())
		}
		v.counted.Insert(n.info.GetPod().UID)
	}
	return nil
}
