package whatif

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"

	"github.com/lockstep-sh/lockstep/pkg/planning/devicesimulation"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Transaction is a hypothetical state of the cluster. It is not safe for
// concurrent changes; Fits may run in parallel between them.
type Transaction struct {
	fw    framework.Framework
	hooks Hooks
	nodes []fwk.NodeInfo
	all   []int
	index map[string]int
	// snapshot is set if pods are assumed in it instead of in copies.
	snapshot *cache.Snapshot
	copied   map[int]bool
	log      []step
	// views are the views that pods that come and go may affect.
	views []*View
	own   sets.Set[types.UID]
	// contending are the pods whose volumes are taken when they are added.
	contending sets.Set[types.UID]
	// expected are pods that may be added, and that others may have to keep away from.
	expected []*framework.PodInfo
	// devices are what pods of the transaction took or freed; made for the first pod that needs any.
	devices *devicesimulation.Overlay
	// held are devices kept for others.
	held []*resourceapi.ResourceClaim
	// nominees lists the pods nominated to nodes.
	nominees func() []nominee
	// lastPrepared is the view whose claims were prepared last.
	lastPrepared *View
	// changes counts all changes; version is, by node, its value at the node's last change.
	version []int
	changes int
}

// step is one pod added or removed.
type step struct {
	info    fwk.PodInfo
	node    int
	removed bool
	// restored: it was removed before.
	restored bool
	// devices are what the pod took when it was added.
	devices devicesimulation.Taken
	// volumes are what the pod took when it was added, nil for none.
	volumes *volumebinding.PodVolumes
	// before is the version that the node had.
	before int
}

// inverse returns the step back.
func (s step) inverse() step {
	s.removed = !s.removed
	return s
}

// Mark is a point to roll back to.
type Mark int

// Begin opens a transaction over the nodes of the framework's snapshot. With interdependent, pods are assumed in the
// snapshot itself, and none can be removed; it fails if the snapshot is not kube-scheduler's own.
func Begin(fw framework.Framework, hooks Hooks, interdependent bool) (*Transaction, error) {
	nodes, err := fw.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fmt.Errorf("listing nodes of the snapshot: %w", err)
	}
	t := &Transaction{fw: fw, hooks: hooks, nodes: slices.Clone(nodes), version: make([]int, len(nodes)),
		all: make([]int, len(nodes)), own: sets.New[types.UID](), contending: sets.New[types.UID]()}
	for i := range t.all {
		t.all[i] = i
	}
	t.nominees = sync.OnceValue(t.listNominees)
	if !interdependent {
		t.copied = map[int]bool{}
		return t, nil
	}
	t.snapshot, err = snapshotOf(fw)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Len returns the number of nodes.
func (t *Transaction) Len() int { return len(t.nodes) }

// AllNodes returns the indexes of all nodes. The result must not be changed.
func (t *Transaction) AllNodes() []int { return t.all }

// Node returns a node in its simulated state.
func (t *Transaction) Node(i int) fwk.NodeInfo { return t.nodes[i] }

// Index returns the index of a node by name.
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

// Indexes returns the indexes of nodes by their names, each once; it skips unknown names.
func (t *Transaction) Indexes(names []string) (nodes []int) {
	known := map[int]bool{}
	for _, name := range names {
		if i, ok := t.Index(name); ok && !known[i] {
			known[i] = true
			nodes = append(nodes, i)
		}
	}
	return nodes
}

// Version returns a number that changes whenever pods on the node do. A rollback restores it.
func (t *Transaction) Version(i int) int { return t.version[i] }

// Changes returns a number that changes whenever anything does.
func (t *Transaction) Changes() int { return t.changes }

// View is a pod prepared for the filters, and every pod that scheduling cannot tell from it. If pods are assumed in the
// snapshot itself, a view is valid only until the next change.
type View struct {
	Pod   *v1.Pod
	State fwk.CycleState
	// only is the nodes that PreFilter left, by name; nil for all.
	only sets.Set[string]
	// beyond are the plugins that may judge a node by pods on others.
	beyond sets.Set[string]
	// spreads: plugins with hooks, or devices that several nodes reach, may matter to other nodes, whatever the pods ask
	// of each other.
	spreads bool
	// claims are the claims of the pod; nil if it needs no devices.
	claims *claims
	// beside is State with the nominated pods that count on any node, whose UIDs are in counted; nil if there are none, or
	// none matters beyond its own node.
	beside  fwk.CycleState
	counted sets.Set[types.UID]
}

// Allows reports whether PreFilter left the node.
func (v *View) Allows(info fwk.NodeInfo) bool {
	return v.only == nil || v.only.Has(info.Node().Name)
}

// Local reports whether, of the pods that come and go, only those on a node matter to the filters' verdict on it.
func (v *View) Local() bool { return len(v.beyond) == 0 }

// Spreads reports whether a pod that comes or goes may matter to other nodes than its own by plugins with hooks, which
// may go by anything. Other plugins go by what pods ask of each other.
func (v *View) Spreads() bool { return v.spreads }

// Settled reports whether a status of a node means that the pod cannot run there whatever pods come and go, there or
// elsewhere.
func (v *View) Settled(status *fwk.Status) bool {
	return status.Code() == fwk.UnschedulableAndUnresolvable && !v.beyond.Has(status.Plugin())
}

// View runs the PreFilter plugins for a pod, which may use what these holders hold. Any status but success is the
// plugins' own: rejected, or an error.
func (t *Transaction) View(ctx context.Context, pod *v1.Pod, holders ...hold.Holder) (*View, *fwk.Status) {
	state := newState(holders)
	result, status, _ := t.fw.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		return nil, status
	}
	v := &View{Pod: pod, State: state}
	if !result.AllNodes() {
		v.only = result.NodeNames
	}
	if t.snapshot == nil && len(t.expected) > 0 && len(t.nodes) > 0 &&
		len(judging(t.hooks.listeners, state)) < len(t.hooks.listeners) {
		beside, err := t.stateBesideExpected(ctx, pod, holders)
		if err != nil {
			return nil, fwk.AsStatus(err)
		}
		if beside != nil {
			v.State = beside
		}
	}
	t.hooks.recordBeyond(v)
	if status := t.prepareClaims(ctx, v); !status.IsSuccess() {
		return nil, status
	}
	if !t.hooks.affectedByPods(v.State) {
		return v, nil
	}
	for _, s := range t.log {
		if err := t.updateView(ctx, v, s); err != nil {
			return nil, fwk.AsStatus(err)
		}
	}
	if err := t.countNominees(ctx, v); err != nil {
		return nil, fwk.AsStatus(err)
	}
	if t.snapshot == nil { // otherwise it is valid until the next change only
		t.views = append(t.views, v)
	}
	return v, nil
}

// updateView updates the states of a view for a pod that came or went. PreFilter plugins have seen the snapshot
// themselves; hooks have not.
func (t *Transaction) updateView(ctx context.Context, v *View, s step) error {
	status := t.updateState(ctx, v.State, v.Pod, s)
	if status.IsSuccess() && v.beside != nil {
		status = t.updateState(ctx, v.beside, v.Pod, s)
	}
	if !status.IsSuccess() {
		return fmt.Errorf("changing the state of pod %s for pod %s: %w", klog.KObj(v.Pod),
			klog.KObj(s.info.GetPod()), status.AsError())
	}
	return nil
}

func (t *Transaction) updateState(ctx context.Context, state fwk.CycleState, pod *v1.Pod, s step) *fwk.Status {
	extension, hook := t.fw.RunPreFilterExtensionAddPod, t.hooks.runAdders
	if s.removed {
		extension, hook = t.fw.RunPreFilterExtensionRemovePod, t.hooks.runRemovers
	}
	if t.snapshot == nil {
		if status := correctingFewest(state, func() *fwk.Status {
			return extension(ctx, state, pod, s.info, t.nodes[s.node])
		}); !status.IsSuccess() {
			return status
		}
	}
	return hook(ctx, state, pod, s.info, t.nodes[s.node])
}

// MarkOwn names the pods that the transaction is about. Their nominations do not count: the transaction decides where
// they go.
func (t *Transaction) MarkOwn(pods ...types.UID) { t.own.Insert(pods...) }

// Add puts a pod on a node. info is its PodInfo; the pod in it is not changed.
func (t *Transaction) Add(ctx context.Context, info *framework.PodInfo, node int) error {
	s := step{info: withNode(info, t.nodes[node].Node().Name), node: node}
	var err error
	if s.volumes, err = t.takeVolumes(ctx, info.Pod, t.nodes[node].Node()); err != nil {
		return err
	}
	if s.devices, err = t.takeDevices(ctx, info.Pod, t.nodes[node]); err == nil {
		err = t.doStep(ctx, s)
	}
	if err != nil {
		t.undoTaken(s)
	}
	return err
}

// Remove takes a pod off its node; info must be the node's. If pods are assumed in the snapshot none can be removed.
func (t *Transaction) Remove(ctx context.Context, info fwk.PodInfo, node int) error {
	if t.snapshot != nil {
		return fmt.Errorf("removing pod %s: the transaction is on the snapshot itself", klog.KObj(info.GetPod()))
	}
	if err := t.updateDevices(info.GetPod(), false); err != nil {
		return err
	}
	return t.doStep(ctx, step{info: info, node: node, removed: true})
}

// Restore puts a removed pod back, exactly as it was.
func (t *Transaction) Restore(ctx context.Context, info fwk.PodInfo, node int) error {
	if err := t.updateDevices(info.GetPod(), true); err != nil {
		return err
	}
	return t.doStep(ctx, step{info: info, node: node, restored: true})
}

func (t *Transaction) doStep(ctx context.Context, s step) error {
	t.changes++
	s.before, t.version[s.node] = t.version[s.node], t.changes
	if err := t.applyStep(ctx, s); err != nil {
		return err
	}
	t.log = append(t.log, s)
	return nil
}

// applyStep applies a step, forwards or back.
func (t *Transaction) applyStep(ctx context.Context, s step) error {
	pod := s.info.GetPod()
	if t.snapshot != nil {
		return t.assumeStep(ctx, s)
	}
	if !t.copied[s.node] {
		t.nodes[s.node] = t.nodes[s.node].Snapshot()
		t.copied[s.node] = true
	}
	if s.removed {
		if err := t.nodes[s.node].RemovePod(klog.FromContext(ctx), pod); err != nil {
			return fmt.Errorf("removing pod %s from node %s: %w", klog.KObj(pod), t.nodes[s.node].Node().Name, err)
		}
	} else {
		t.nodes[s.node].AddPodInfo(s.info)
	}
	for _, v := range t.views {
		if err := t.updateView(ctx, v, s); err != nil {
			return err
		}
	}
	return nil
}

// assumeStep applies a step to the snapshot itself.
func (t *Transaction) assumeStep(ctx context.Context, s step) error {
	pod := s.info.GetPod()
	if s.removed {
		if err := t.snapshot.ForgetPod(klog.FromContext(ctx), pod); err != nil {
			return fmt.Errorf("forgetting pod %s in the snapshot: %w", klog.KObj(pod), err)
		}
		return nil
	}
	info, ok := s.info.(*framework.PodInfo)
	if !ok {
		return fmt.Errorf("assuming pod %s in the snapshot: want *framework.PodInfo, got %T", klog.KObj(pod), s.info)
	}
	if err := t.snapshot.AssumePod(info); err != nil {
		return fmt.Errorf("assuming pod %s in the snapshot: %w", klog.KObj(pod), err)
	}
	return nil
}

// withNode copies a PodInfo, with the pod on a node. The copy is shallow: nothing in a pod but its node name is ever
// written through it.
func withNode(info *framework.PodInfo, node string) *framework.PodInfo {
	pod := *info.Pod
	pod.Spec.NodeName = node
	placed := *info
	placed.Pod = &pod
	return &placed
}

// Added lists the pods that were added since a mark and not rolled back, in order.
func (t *Transaction) Added(since Mark) []types.UID {
	var uids []types.UID
	for _, s := range t.log[since:] {
		if !s.removed {
			uids = append(uids, s.info.GetPod().UID)
		}
	}
	return uids
}

// Checkpoint returns a point to roll back to.
func (t *Transaction) Checkpoint() Mark { return Mark(len(t.log)) }

// Rollback undoes what was done since the mark, last first.
func (t *Transaction) Rollback(ctx context.Context, mark Mark) error {
	for len(t.log) > int(mark) {
		last := t.log[len(t.log)-1]
		t.log = t.log[:len(t.log)-1]
		t.undoTaken(last)
		if last.removed || last.restored {
			if err := t.updateDevices(last.info.GetPod(), last.removed); err != nil {
				return err
			}
		}
		t.changes++
		t.version[last.node] = last.before
		if err := t.applyStep(ctx, last.inverse()); err != nil {
			return err
		}
	}
	return nil
}

// Discard ends the transaction and restores the snapshot and the volumes. Every transaction must end with it.
func (t *Transaction) Discard(ctx context.Context) (err error) {
	if t.snapshot != nil {
		err = t.Rollback(ctx, 0)
	}
	// Copies, and devices with the overlay, need no undo. Volumes do, whatever happened.
	for _, s := range slices.Backward(t.log) {
		t.undoTaken(s)
	}
	t.log = nil
	return err
}
