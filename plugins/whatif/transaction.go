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
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Transaction is a hypothetical state of the cluster. It is not safe for
// concurrent changes; Fits may run in parallel between them.
type Transaction struct {
	fw    framework.Framework
	nodes []fwk.NodeInfo
	index map[string]int
	// snapshot is set where pods are assumed in it instead of in copies.
	snapshot *cache.Snapshot
	copied   map[int]bool
	log      []step
	views    []*View
	own      sets.Set[types.UID]
	// version counts the changes of each node.
	version []int
}

// step is one pod added.
type step struct {
	info *framework.PodInfo
	node int
}

// Mark is a point to roll back to.
type Mark int

// Begin opens a transaction over the nodes of the framework's snapshot. With
// interdependent, pods are assumed in the snapshot itself; an error then means
// that the snapshot is not kube-scheduler's own.
func Begin(fw framework.Framework, interdependent bool) (*Transaction, error) {
	nodes, err := fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fmt.Errorf("listing nodes of the snapshot: %w", err)
	}
	t := &Transaction{fw: fw, nodes: append([]fwk.NodeInfo(nil), nodes...), version: make([]int, len(nodes)), own: sets.New[types.UID]()}
	if !interdependent {
		t.copied = map[int]bool{}
		return t, nil
	}
	snapshot, ok := fw.SnapshotSharedLister().(*cache.Snapshot)
	if !ok {
		return nil, fmt.Errorf("assuming pods in the snapshot: want *cache.Snapshot, got %T", fw.SnapshotSharedLister())
	}
	t.snapshot = snapshot
	return t, nil
}

// Len is the number of nodes.
func (t *Transaction) Len() int { return len(t.nodes) }

// Node is a node as it would be.
func (t *Transaction) Node(i int) fwk.NodeInfo { return t.nodes[i] }

// Index finds a node by its name.
func (t *Transaction) Index(name string) (int, bool) {
	if t.index == nil { // most plans never ask
		t.index = make(map[string]int, len(t.nodes))
		for i, node := range t.nodes {
			t.index[node.Node().Name] = i
		}
	}
	i, ok := t.index[name]
	return i, ok
}

// Version changes whenever pods on the node do.
func (t *Transaction) Version(i int) int { return t.version[i] }

// View is how the filters see the transaction for one pod, and for every pod
// that scheduling cannot tell from it. Of pods that care about each other a view
// holds only until the next change.
type View struct {
	Pod   *v1.Pod
	State fwk.CycleState
	// only is the nodes that PreFilter left, by name; nil means all.
	only sets.Set[string]
}

// Allows tells whether PreFilter left the node.
func (v *View) Allows(info fwk.NodeInfo) bool {
	return v.only == nil || v.only.Has(info.Node().Name)
}

// View runs the PreFilter plugins for a pod. prepare may write to the cycle
// state first. A status that is not a success is the plugins' own: rejected, or
// an error.
func (t *Transaction) View(ctx context.Context, pod *v1.Pod, prepare func(fwk.CycleState)) (*View, *fwk.Status) {
	state := framework.NewCycleState()
	prepare(state)
	result, status, _ := t.fw.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		return nil, status
	}
	v := &View{Pod: pod, State: state}
	if !result.AllNodes() {
		v.only = result.NodeNames
	}
	if t.snapshot != nil {
		return v, nil // what was added stands in the snapshot
	}
	for _, s := range t.log {
		if err := t.shift(ctx, v, s, t.fw.RunPreFilterExtensionAddPod); err != nil {
			return nil, fwk.AsStatus(err)
		}
	}
	t.views = append(t.views, v)
	return v, nil
}

// shift tells a view that a pod came or went.
func (t *Transaction) shift(ctx context.Context, v *View, s step, extension func(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status) error {
	if status := extension(ctx, v.State, v.Pod, s.info, t.nodes[s.node]); !status.IsSuccess() {
		return fmt.Errorf("changing the state of pod %s for pod %s: %w", klog.KObj(v.Pod), klog.KObj(s.info.Pod), status.AsError())
	}
	return nil
}

// Fits runs the filters for a view on a node, as the scheduling cycle does:
// counting nominated pods of equal or higher priority, and again without them.
func (t *Transaction) Fits(ctx context.Context, v *View, node int) *fwk.Status {
	info := t.nodes[node]
	nominated := t.nominated(v.Pod, info)
	if len(nominated) == 0 {
		return t.fw.RunFilterPlugins(ctx, v.State, v.Pod, info)
	}
	with, state := info.Snapshot(), v.State.Clone()
	for _, p := range nominated {
		with.AddPodInfo(p)
		if status := t.fw.RunPreFilterExtensionAddPod(ctx, state, v.Pod, p, with); !status.IsSuccess() {
			return fwk.AsStatus(fmt.Errorf("counting nominated pod %s: %w", klog.KObj(p.GetPod()), status.AsError()))
		}
	}
	if status := t.fw.RunFilterPlugins(ctx, state, v.Pod, with); !status.IsSuccess() {
		return status
	}
	return t.fw.RunFilterPlugins(ctx, v.State, v.Pod, info)
}

// nominated lists the pods that are nominated to a node and that a pod has to make
// room for.
func (t *Transaction) nominated(pod *v1.Pod, info fwk.NodeInfo) []fwk.PodInfo {
	return slices.DeleteFunc(t.fw.NominatedPodsForNode(info.Node().Name), func(p fwk.PodInfo) bool {
		other := p.GetPod()
		return other.UID == pod.UID || t.own.Has(other.UID) || corev1helpers.PodPriority(other) < corev1helpers.PodPriority(pod)
	})
}

// Own names the pods that the transaction is about. Where they are nominated to
// does not count: it says where they stand.
func (t *Transaction) Own(pods ...types.UID) { t.own.Insert(pods...) }

// Add puts a pod on a node. info is its PodInfo; the pod in it is not changed.
func (t *Transaction) Add(ctx context.Context, info *framework.PodInfo, node int) error {
	added := step{info: place(info, t.nodes[node].Node().Name), node: node}
	if t.snapshot != nil {
		if err := t.snapshot.AssumePod(added.info); err != nil {
			return fmt.Errorf("assuming pod %s in the snapshot: %w", klog.KObj(info.Pod), err)
		}
	} else {
		if !t.copied[node] {
			t.nodes[node] = t.nodes[node].Snapshot()
			t.copied[node] = true
		}
		t.nodes[node].AddPodInfo(added.info)
		for _, v := range t.views {
			if err := t.shift(ctx, v, added, t.fw.RunPreFilterExtensionAddPod); err != nil {
				return err
			}
		}
	}
	t.version[node]++
	t.log = append(t.log, added)
	return nil
}

// place copies what a PodInfo has, with the pod on a node. The copy is shallow:
// nothing in a pod but its node name is ever written through it.
func place(info *framework.PodInfo, node string) *framework.PodInfo {
	pod := *info.Pod
	pod.Spec.NodeName = node
	placed := *info
	placed.Pod = &pod
	return &placed
}

// Added lists the pods that were added and not taken back, in that order.
func (t *Transaction) Added() []types.UID {
	uids := make([]types.UID, len(t.log))
	for i, s := range t.log {
		uids[i] = s.info.Pod.UID
	}
	return uids
}

// Mark answers a point to roll back to.
func (t *Transaction) Mark() Mark { return Mark(len(t.log)) }

// Rollback takes back what was added since the mark, last first.
func (t *Transaction) Rollback(ctx context.Context, mark Mark) error {
	logger := klog.FromContext(ctx)
	for len(t.log) > int(mark) {
		last := t.log[len(t.log)-1]
		t.log = t.log[:len(t.log)-1]
		t.version[last.node]++
		if t.snapshot != nil {
			if err := t.snapshot.ForgetPod(logger, last.info.Pod); err != nil {
				return fmt.Errorf("forgetting pod %s in the snapshot: %w", klog.KObj(last.info.Pod), err)
			}
			continue
		}
		if err := t.nodes[last.node].RemovePod(logger, last.info.Pod); err != nil {
			return fmt.Errorf("removing pod %s from node %s: %w", klog.KObj(last.info.Pod), t.nodes[last.node].Node().Name, err)
		}
		for _, v := range t.views {
			if err := t.shift(ctx, v, last, t.fw.RunPreFilterExtensionRemovePod); err != nil {
				return err
			}
		}
	}
	return nil
}

// Discard ends the transaction and leaves the snapshot as it was found.
func (t *Transaction) Discard(ctx context.Context) error {
	if t.snapshot == nil {
		return nil // copies just go away
	}
	return t.Rollback(ctx, 0)
}
