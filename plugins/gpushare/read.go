package gpushare

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource/gpucards"
)

// described is what the cards of a node are read from: its annotation, if any, and its allocatable memory.
type described struct {
	value     string
	annotated bool
	total     int64
}

// layout is the cards of a node.
type layout struct {
	described
	// sizes are the memory of each card; none where the value is invalid, and want describes a valid one.
	sizes []int64
	want  error
}

// readLayout reads the cards of a node. A node without the annotation has one card.
func readLayout(d described) layout {
	l := layout{described: d}
	switch {
	case d.total <= 0:
		// It has nothing to give, whatever its annotation.
	case d.annotated:
		l.sizes, l.want = gpucards.ParseSizes(d.value, d.total)
	default:
		l.sizes = []int64{d.total}
	}
	return l
}

// largest returns the memory of the largest card.
func (l layout) largest() (most int64) {
	for _, size := range l.sizes {
		most = max(most, size)
	}
	return most
}

// describedOn returns what the cards of a node are read from.
func describedOn(node *v1.Node, total int64) described {
	value, annotated := node.Annotations[v1alpha1.GPUCardsAnnotation]
	return described{value: value, annotated: annotated, total: total}
}

// layoutOf reads the cards of a node as an object.
func layoutOf(node *v1.Node) layout {
	total := node.Status.Allocatable[v1alpha1.GPUMemoryResource]
	return readLayout(describedOn(node, total.Value()))
}

// cards returns the cards of a node, and reports it where they cannot be read.
func (pl *GPUShare) cards(info fwk.NodeInfo) layout {
	node := info.Node()
	l := pl.ledger.layout(node, info.GetAllocatable().GetScalarResources()[v1alpha1.GPUMemoryResource])
	if l.want != nil {
		pl.tellCards(node, l)
	}
	return l
}

// choose returns the card that the pod of a cycle would get on a node, and what is free beside it; false
// where there is none. further are pods that are on its cards as well.
func (pl *GPUShare) choose(c *cycle, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo, sizes []int64,
	further ...gpucards.Pod) (int, gpucards.Free, bool) {
	own := gpucards.Kept{}
	for _, keeper := range pl.keepers() {
		kept := keeper.KeptCards(state, pod, info)
		further = append(further, kept.Pods(len(sizes))...)
		if kept.Has {
			own = kept
		}
	}
	free, _ := gpucards.Lay(sizes, append(pl.pods(c, state, info, sizes), further...))
	index, ok := own.Choose(free, c.memory)
	return index, free, ok
}

// takenCard returns the card of which a pod of a what-if has taken what was kept for it; false for none.
func (pl *GPUShare) takenCard(state fwk.CycleState, pod types.UID) (int, bool) {
	for _, keeper := range pl.keepers() {
		if at, ok := keeper.TakenCard(state, pod); ok {
			return at, true
		}
	}
	return 0, false
}

// CardRoom reports whether the pod of a cycle finds a card on a node, beside what is kept there.
func (pl *GPUShare) CardRoom(state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo, kept gpucards.Kept) bool {
	c, sizes := cycleOf(state), pl.cards(info).sizes
	if c == nil {
		return true // it asks for no memory
	}
	free, _ := gpucards.Lay(sizes, append(pl.pods(c, state, info, sizes), kept.Pods(len(sizes))...))
	_, ok := kept.Choose(free, c.memory)
	return ok
}

// pods lists the pods of a node that have GPU memory, those without a card in the order
// in which they came. It costs time by the pods of this one node, and next to none where
// no pod has GPU memory.
func (pl *GPUShare) pods(c *cycle, state fwk.CycleState, info fwk.NodeInfo, sizes []int64) []gpucards.Pod {
	if info.GetRequested().GetScalarResources()[v1alpha1.GPUMemoryResource] == 0 {
		return nil
	}
	type arrived struct {
		gpucards.Pod
		number int
	}
	var found []arrived
	recorded := make([]int64, len(sizes))
	for _, p := range info.GetPods() {
		memory := requestedBy(p)
		if memory <= 0 || p.GetPod().UID == c.but {
			continue
		}
		a, ok := c.arrivals[p.GetPod()]
		if !ok {
			a.number = math.MaxInt // pods that were not noted are in the node's order
		}
		at := gpucards.Open
		if !a.fresh {
			at = pl.cardOf(p.GetPod(), memory, info.Node(), len(sizes))
		} else if taken, ok := pl.takenCard(state, p.GetPod().UID); ok && taken < len(sizes) {
			at = taken
		}
		if at >= 0 && !a.fresh {
			recorded[at] += min(memory, math.MaxInt64-recorded[at])
		}
		found = append(found, arrived{gpucards.Pod{Memory: memory, Card: at}, a.number})
	}
	for i := range recorded {
		if recorded[i] > sizes[i] {
			pl.tellOversold(info.Node(), i, recorded[i], sizes[i])
		}
	}
	slices.SortStableFunc(found, func(a, b arrived) int { return cmp.Compare(a.number, b.number) })
	pods := make([]gpucards.Pod, len(found))
	for i, a := range found {
		pods[i] = a.Pod
	}
	return pods
}

// cardOf returns the card of a pod on a node with so many. What this process has reserved
// takes precedence over the pod's annotation, which may be of an earlier attempt to bind
// it. A pod that another scheduler has bound without a card may be on any.
func (pl *GPUShare) cardOf(pod *v1.Pod, memory int64, node *v1.Node, cards int) int {
	if r, ok := pl.ledger.reservationOf(pod.UID); ok && r.node == node.Name {
		if r.card >= cards {
			return gpucards.Anywhere
		}
		return r.card
	}
	scheduled := scheduledCondition(pod)
	value, ok := pod.Annotations[v1alpha1.GPUCardAnnotation]
	switch {
	case scheduled == v1.ConditionFalse, !ok && scheduled != v1.ConditionTrue:
		return gpucards.Open // it is not on its node yet
	case !ok:
		pl.tellCardMissing(pod, memory, node)
		return gpucards.Anywhere
	}
	if said, ok := pod.Annotations[v1alpha1.GPUCardMemoryAnnotation]; ok && said != strconv.FormatInt(memory, 10) {
		pl.tellMemory(pod, said, memory)
	}
	index, err := gpucards.ParseIndex(value, cards)
	if err != nil {
		pl.tellCard(pod, value, err, memory, node)
		return gpucards.Anywhere
	}
	return index
}

// scheduledCondition returns whether the API server has a pod on a node. The node
// name does not show that: pods that a what-if adds have one.
func scheduledCondition(pod *v1.Pod) v1.ConditionStatus {
	if _, c := podutil.GetPodCondition(&pod.Status, v1.PodScheduled); c != nil {
		return c.Status
	}
	return v1.ConditionUnknown
}

// reservedSince lists pods that have a card reserved on a node and are not on the node as
// given yet.
func (pl *GPUShare) reservedSince(info fwk.NodeInfo, cards int, but types.UID) []gpucards.Pod {
	reserved := pl.ledger.reservationsOn(info.Node().Name)
	delete(reserved, but)
	for _, p := range info.GetPods() {
		delete(reserved, p.GetPod().UID)
	}
	var pods []gpucards.Pod
	for _, r := range reserved { // in any order: they have their cards
		at := r.card
		if at >= cards {
			at = gpucards.Anywhere
		}
		pods = append(pods, gpucards.Pod{Memory: r.memory, Card: at})
	}
	return pods
}
