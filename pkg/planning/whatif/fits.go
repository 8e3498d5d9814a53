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

// Fits runs the filters for a view on a node, as the scheduling cycle does: with nominated pods of equal or higher
// priority, and again without them. kube-scheduler counts only those nominated to the node itself. If plugins with
// hooks judge nodes by pods on others, all count: otherwise capacity outside nodes, such as licences, would go to the
// first pod that comes between an eviction and its placement.
func (t *Transaction) Fits(ctx context.Context, v *View, node int) *fwk.Status {
	if v.claims != nil {
		if status := t.refreshClaims(ctx, v); !status.IsSuccess() {
			return status
		}
	}
	info := t.nodes[node]
	if nominated := t.nominated(v.Pod, info); len(nominated) > 0 || v.beside != nil {
		if status := t.fitsBeside(ctx, v, info, nominated); !status.IsSuccess() {
			return status
		}
	}
	return t.runFilters(ctx, v.State, v.Pod, info)
}

// fitsBeside runs the filters with nominated pods on their nodes.
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
		status := correctingFewest(state, func() *fwk.Status {
			return t.fw.RunPreFilterExtensionAddPod(ctx, state, v.Pod, p, info)
		})
		if status.IsSuccess() && !v.counted.Has(p.GetPod().UID) {
			status = t.hooks.runAdders(ctx, state, v.Pod, p, info)
		}
		if !status.IsSuccess() {
			return fwk.AsStatus(fmt.Errorf("counting nominated pod %s: %w", klog.KObj(p.GetPod()), status.AsError()))
		}
	}
	return t.runFilters(ctx, state, v.Pod, info)
}

// runFilters runs the filters, then the hooks.
func (t *Transaction) runFilters(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	info fwk.NodeInfo) *fwk.Status {
	if status := t.fw.RunFilterPlugins(ctx, state, pod, info); !status.IsSuccess() {
		return status
	}
	return each(t.hooks.predicates, func(p Predicate) *fwk.Status { return p.SimulatePredicate(ctx, state, pod, info) })
}

// nominated lists the pods nominated to a node that a pod must make room for.
func (t *Transaction) nominated(pod *v1.Pod, info fwk.NodeInfo) []fwk.PodInfo {
	return slices.DeleteFunc(t.fw.NominatedPodsForNode(info.Node().Name), func(p fwk.PodInfo) bool {
		return !t.makesRoomFor(pod, p.GetPod())
	})
}

// makesRoomFor reports whether a pod must make room for a nominated one.
func (t *Transaction) makesRoomFor(pod, nominated *v1.Pod) bool {
	return nominated.UID != pod.UID && !t.own.Has(nominated.UID) &&
		corev1helpers.PodPriority(nominated) >= corev1helpers.PodPriority(pod)
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

// countNominees prepares the state of a view, as hooks see it, with the nominated pods on their nodes that it must make
// room for. The framework's own plugins see those on the node being filtered, as in kube-scheduler.
func (t *Transaction) countNominees(ctx context.Context, v *View) error {
	if len(judging(t.hooks.nonLocal, v.State)) == 0 {
		return nil
	}
	for _, n := range t.nominees() {
		if !t.makesRoomFor(v.Pod, n.info.GetPod()) {
			continue
		}
		if v.beside == nil {
			v.beside, v.counted = v.State.Clone(), sets.New[types.UID]()
		}
		node := t.nodes[n.node].Snapshot()
		node.AddPodInfo(n.info)
		if status := t.hooks.runAdders(ctx, v.beside, v.Pod, n.info, node); !status.IsSuccess() {
			return fmt.Errorf("counting nominated pod %s: %w", klog.KObj(n.info.GetPod()), status.AsError())
		}
		v.counted.Insert(n.info.GetPod().UID)
	}
	return nil
}
