package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedutil "k8s.io/kubernetes/pkg/scheduler/util"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Reasons of nodes that Filter refuses.
const (
	// ErrReasonFull is the reason of nodes without a card that has that much free memory.
	ErrReasonFull = "node(s) had no GPU card with enough free memory"
	// ErrReasonSmall is the reason of nodes without a card that has that much memory.
	ErrReasonSmall = "node(s) had no GPU card of that size"
	// ErrReasonUnreadable is the reason of nodes whose description of their cards is invalid.
	ErrReasonUnreadable = "node(s) had GPU cards that could not be read"
)

// EventsToRegister returns what could help a pod that was refused. A repair of the annotation of
// another pod is not among them: kube-scheduler would call the hint for every
// update of every pod.
func (pl *GPUShare) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A pod that goes frees its card.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: pl.afterPodDelete},
		// A new node has cards; a changed one may have more or larger ones, or a valid description
		// now.
		{Event: fwk.ClusterEvent{Resource: fwk.Node,
			ActionType: fwk.Add | fwk.UpdateNodeAllocatable | fwk.UpdateNodeAnnotation}, QueueingHintFn: pl.afterNodeChange},
	}, nil
}

// afterPodDelete queues a pod when one that had GPU memory goes.
func (pl *GPUShare) afterPodDelete(_ klog.Logger, _ *v1.Pod, oldObject, newObject any) (fwk.QueueingHint, error) {
	gone, _, err := schedutil.As[*v1.Pod](oldObject, newObject)
	if err != nil {
		return fwk.Queue, err
	}
	if requested(gone) == 0 {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// afterNodeChange queues a pod when the cards of a node change and one of them is
// large enough.
func (pl *GPUShare) afterNodeChange(_ klog.Logger, pod *v1.Pod, oldObject, newObject any) (fwk.QueueingHint, error) {
	before, after, err := schedutil.As[*v1.Node](oldObject, newObject)
	if err != nil {
		return fwk.Queue, err
	}
	now := layoutOf(after)
	if now.largest() < requested(pod) {
		return fwk.QueueSkip, nil
	}
	if before != nil {
		if layoutOf(before).described == now.described {
			return fwk.QueueSkip, nil
		}
	}
	return fwk.Queue, nil
}

// SignPod distinguishes pods by their GPU memory.
func (pl *GPUShare) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	memory := requested(pod)
	if memory == 0 {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: v1alpha1.GPUMemoryResource, Value: memory}}, nil
}

// PreFilter keeps the plugin out of the cycles of pods that request no GPU memory.
func (pl *GPUShare) PreFilter(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	_ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	memory := requested(pod)
	if memory == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(cycleKey, &cycle{memory: memory})
	return nil, nil
}

// PreFilterExtensions returns none: Filter reads the node as it is given, and a pod that
// preemption takes away and puts back has its card in the ledger or in its annotation.
// The Simulate hooks keep what a what-if needs beyond that.
func (pl *GPUShare) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter looks for a card with enough free memory. It looks at the pods of this one node:
// an index of them could not have what a what-if has added or taken away.
func (pl *GPUShare) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	l := pl.cards(info)
	switch {
	case l.want != nil:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonUnreadable)
	case l.largest() < c.memory:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonSmall)
	}
	if _, _, ok := pl.choose(c, state, pod, info, l.sizes); !ok {
		return fwk.NewStatus(fwk.Unschedulable, ErrReasonFull)
	}
	return nil
}

// PreScore skips Score for pods that request no GPU memory.
func (pl *GPUShare) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if cycleOf(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score prefers nodes on which the pod fills a card: it is the share of the pod's card
// that is taken then. Cards that are left whole stay available for pods that need one.
func (pl *GPUShare) Score(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	info fwk.NodeInfo) (int64, *fwk.Status) {
	c, l := cycleOf(state), pl.cards(info)
	best, free, ok := pl.choose(c, state, pod, info, l.sizes)
	if !ok {
		return 0, nil
	}
	// By floating point, since memory in MiB times 100 may not fit.
	taken := float64(l.sizes[best]-free[best]+c.memory) / float64(l.sizes[best])
	return int64(taken * float64(fwk.MaxScore)), nil
}

// ScoreExtensions returns none: the scores are in range as they are.
func (pl *GPUShare) ScoreExtensions() fwk.ScoreExtensions { return nil }
