package planner

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/placement"
	"github.com/lockstep-sh/lockstep/plugins/internal/resource"
	"github.com/lockstep-sh/lockstep/plugins/whatif"
)

// world answers a plan's questions about the cluster from a what-if transaction.
// It is the adapter between placement, which knows indexes, and the framework.
type world struct {
	fw     framework.Framework
	tx     *whatif.Transaction
	holds  *holds.Holds
	sample func(nodes int) int
	// checksResources is whether the profile filters by node resources, so that arithmetic may rule
	// nodes out before the filters do; checksAffinity is whether it filters by what pods ask of the
	// labels and names of nodes.
	checksResources, checksAffinity bool

	// weights are the weights of the profile's Score plugins.
	weights map[string]int64

	classes []*class
	views   []*whatif.View // by class; made when first asked for
	pods    []*v1.Pod      // by member
	classOf []int          // by member
	// uses is how many pods of the attempt have each claim.
	uses    map[claimKey]int
	storage storage
	// supplies are the volumes that are left, by the make of the claims they are good for.
	supplies map[string]*supply
	// takes is the storage class of which a member takes a volume, where these are counted.
	takes map[types.UID]string
	// verdicts are by class and node; only where room is sought, and nil for classes that
	// are volatile, or not prepared yet.
	verdicts [][]verdict
	// coupled: members care about each other. In a plan every one is prepared and scored anew, on a
	// snapshot in which the earlier ones are assumed; inCopies, where room is sought, the filters get
	// the pods that come and go.
	coupled, inCopies bool
	// base is what stood before any member was placed.
	base whatif.Mark
	// floors are what gangs ask for beside their minimums, by gang; nil for none.
	floors []*floor
	// outstanding is what other gangs that have begun are still to take; it counts beside floors.
	outstanding []gang.Outstanding
	// unscored: the question is only whether members fit, not where best.
	unscored bool

	// refused counts the reasons of nodes that took no member, for the explanation.
	refused map[string]map[string]bool // reason -> node names
	// rejected is the reason with which PreFilter plugins rejected a whole class.
	rejected map[int]string
	// barred are the rejected classes that would be rejected on an empty cluster, too.
	barred map[int]bool
	// never are the nodes that a class cannot use, whichever members of the attempt are placed where.
	never map[slot]bool
	// closed are the nodes that a class could not use if the cluster were empty.
	closed  map[slot]bool
	lacking map[v1.ResourceName]bool
	// lackingDevices: a node was refused for its devices.
	lackingDevices bool
	// devices is how many devices nodes have by name, where that was asked.
	devices map[counted]map[string]int
	// backs are the device classes behind resources, where that was asked; empty for none.
	backs map[v1.ResourceName]string
	// opaque: a node was refused by a plugin that may look at more of a pod than a shape has.
	opaque bool
	// denied is why a member was not admitted at all as things stood then.
	denied string
	// deniedPods are the members that a plugin did not admit before any node was looked at.
	deniedPods map[types.UID]bool
}

var _ placement.World = &world{}

// Slots bounds from above how many more members of a class a node takes, by
// arithmetic alone. A resource that the node does not list is left to the
// filters: some plugins provide it by other means.
func (w *world) Slots(class, node int) int {
	n, _ := w.slots(class, node)
	return n
}

func (w *world) slots(class, node int) (int, v1.ResourceName) {
	return w.slotsWithout(class, node, nil, 0)
}

// slotsWithout returns what slots would if so much were freed on the node, by so many pods.
func (w *world) slotsWithout(class, node int, freed resource.Vector, pods int) (int, v1.ResourceName) {
	most := w.volumeSlots(class, node)
	if most == 0 {
		return 0, ""
	}
	if w.classes[class].alone {
		most = min(most, 1)
	}
	most = min(most, max(1, w.deviceSlots(class, node))) // the filters report devices that are not there
	if !w.checksResources {
		return min(most, len(w.pods)), ""
	}
	info, demand := w.tx.Node(node), w.classes[class].demand
	has, used := info.GetAllocatable(), info.GetRequested()
	taken, some := w.holds.Others(info, w.classes[class].holders...)
	least, scarce := has.GetAllowedPodNumber()-len(info.GetPods())-taken.Pods+pods, v1.ResourcePods
	for name, amount := range demand.Request {
		total := holds.Amount(has, name)
		if total == 0 && !isNative(name) {
			continue
		}
		free := total - holds.Amount(used, name) + freed[name]
		if some {
			free -= taken.Request[name]
		}
		if n := int(min(free/amount, math.MaxInt32)); n < least {
			least, scarce = n, name
		}
	}
	return max(0, min(least, most)), scarce
}

func isNative(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage
}

// slot is a node for a class.
type slot struct{ class, node int }

// Label returns a label of a node.
func (w *world) Label(node int, key string) (string, bool) {
	value, ok := w.tx.Node(node).Node().Labels[key]
	return value, ok
}

// Mark returns a point to undo to.
func (w *world) Mark() int { return int(w.tx.Checkpoint()) }

// Undo takes back placements.
func (w *world) Undo(ctx context.Context, mark int) error {
	return w.tx.Rollback(ctx, whatif.Mark(mark))
}

// view prepares a class, once. A nil view with a nil error means that plugins
// reject the class on every node.
func (w *world) view(ctx context.Context, class int) (*whatif.View, error) {
	if w.rejected[class] != "" {
		return nil, nil
	}
	if w.views[class] != nil {
		return w.views[class], nil
	}
	v, err := w.prepare(ctx, class, w.classes[class].info.Pod)
	if v == nil || err != nil {
		return nil, err
	}
	w.views[class] = v
	if w.verdicts != nil && v.Local() && !w.volatile(class) {
		w.verdicts[class] = make([]verdict, w.tx.Len())
	}
	return v, nil
}

// viewOf returns the view of a class for one of its members.
func (w *world) viewOf(ctx context.Context, class int, pod *v1.Pod) (*whatif.View, error) {
	v, err := w.view(ctx, class)
	if v == nil || err != nil || !w.classes[class].claims.any {
		return v, err
	}
	own, status := w.tx.For(ctx, v, pod)
	switch {
	case status.IsSuccess():
		return own, nil
	case status.IsRejected():
		w.denied, w.deniedPods[pod.UID] = status.Message(), true
		return nil, nil
	default:
		return nil, fmt.Errorf("preparing pod %s/%s: %w", pod.Namespace, pod.Name, status.AsError())
	}
}

// volatile reports whether members that are placed on a node may change on which other nodes
// those of a class fit. The class has to be prepared.
func (w *world) volatile(class int) bool {
	return w.coupled || w.classes[class].claims.contends && w.classes[class].counted == "" || w.views[class].Spreads()
}

func (w *world) prepare(ctx context.Context, class int, pod *v1.Pod) (*whatif.View, error) {
	v, status := w.tx.View(ctx, pod, func(state fwk.CycleState) {
		Ask(state, w.classes[class].holders...)
	})
	if status.IsSuccess() {
		return v, nil
	}
	if status.IsRejected() {
		w.rejected[class] = status.Message()
		w.barred[class] = forGood(status)
		return nil, nil
	}
	return nil, fmt.Errorf("preparing pod %s/%s: %w", pod.Namespace, pod.Name, status.AsError())
}

// Open prepares to place members of a class on nodes of a scope.
func (w *world) Open(ctx context.Context, class int, scope []int, want int, tight bool) (placement.Offers, error) {
	if w.coupled && !w.inCopies {
		return &coupledOffers{world: w, class: class, scope: scope, tight: tight}, nil
	}
	v, err := w.view(ctx, class)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return none{}, nil
	}
	return &offers{world: w, class: class, view: v, scope: scope, want: want, tight: tight}, nil
}

// admits reports whether the pod of a view may be placed at all as things stand.
func (w *world) admits(ctx context.Context, v *whatif.View) (bool, error) {
	status := w.tx.Admits(ctx, v)
	switch {
	case status.IsSuccess():
		return true, nil
	case status.IsRejected():
		w.denied = status.Message()
		return false, nil
	default:
		return false, fmt.Errorf("asking whether pod %s/%s may be placed: %w", v.Pod.Namespace, v.Pod.Name, status.AsError())
	}
}

// none is the offers of a class that no node takes.
type none struct{}

func (none) Take(context.Context, int) (int, bool, error) { return 0, false, nil }

// add places a member in the transaction.
func (w *world) add(ctx context.Context, member, node int) error {
	c := w.classes[w.classOf[member]]
	return w.tx.Add(ctx, c.podInfo(w.pods[member]), node)
}

// sweep filters nodes of a scope from a position on, in parallel, until enough feasible ones are
// found: target of them, with room for want members. It returns them in scope order, and the position
// after the last node seen.
func (w *world) sweep(ctx context.Context, v *whatif.View, class int, scope []int, from, target, want int) (found []int, next int, err error) {
	room := 0
	for next = from; next < len(scope) && (len(found) < target || room < want); {
		chunk := scope[next:min(len(scope), next+max(target-len(found), minChunk))]
		next += len(chunk)
		feasible, err := w.filter(ctx, v, class, chunk)
		if err != nil {
			return nil, next, err
		}
		for _, node := range feasible {
			room += w.Slots(class, node)
		}
		found = append(found, feasible...)
	}
	return found, next, nil
}

// minChunk keeps the sweep's rounds worth the parallel start.
const minChunk = 64

// filter returns which of the nodes a class fits on.
func (w *world) filter(ctx context.Context, v *whatif.View, class int, nodes []int) ([]int, error) {
	candidates := make([]int, 0, len(nodes))
	for _, node := range nodes {
		info := w.tx.Node(node)
		if !v.Allows(info) {
			w.never[slot{class, node}] = true
			w.refuse(node, "didn't satisfy a plugin's choice of nodes")
			continue
		}
		if w.volumeSlots(class, node) == 0 {
			w.never[slot{class, node}] = !w.reaches(class, node)
			w.refuse(node, w.volumeReason(class, node))
			continue
		}
		if n, scarce := w.slots(class, node); n == 0 {
			w.lacking[scarce] = true
			w.refuse(node, w.scarcity(class, node, scarce))
			continue
		}
		candidates = append(candidates, node)
	}
	statuses := make([]*fwk.Status, len(candidates))
	if len(candidates) < 8 {
		for i, node := range candidates {
			statuses[i] = w.ask(ctx, v, class, node)
		}
	} else {
		var failed atomic.Bool
		w.fw.Parallelizer().Until(ctx, len(candidates), func(i int) {
			if !failed.Load() {
				statuses[i] = w.ask(ctx, v, class, candidates[i])
				if statuses[i].Code() == fwk.Error {
					failed.Store(true)
				}
			}
		}, operation)
	}
	feasible := candidates[:0]
	for i, node := range candidates {
		if v.Settled(statuses[i]) && (w.tx.Checkpoint() == w.base || !w.volatile(class)) && !w.coupled {
			w.never[slot{class, node}] = true
		}
		if lasts(ctx, statuses[i], v.Pod, w.tx.Node(node).Node()) {
			w.closed[slot{class, node}] = true
		}
		if ok, err := w.judge(node, statuses[i]); err != nil {
			return nil, err
		} else if ok {
			feasible = append(feasible, node)
		}
	}
	return slices.Clip(feasible), ctx.Err()
}

// scarcity returns why arithmetic rules a node out: nothing left, or held for others.
func (w *world) scarcity(class, node int, scarce v1.ResourceName) string {
	if w.holds.Check(w.classes[class].demand, w.tx.Node(node), w.classes[class].holders...) != nil {
		info := w.tx.Node(node)
		has, used := info.GetAllocatable(), info.GetRequested()
		if scarce != v1.ResourcePods && holds.Amount(has, scarce)-holds.Amount(used, scarce) >= w.classes[class].demand.Request[scarce] {
			return holds.ErrReasonHeld
		}
	}
	if scarce == v1.ResourcePods {
		return "Too many pods"
	}
	return "Insufficient " + string(scarce)
}

// ask runs the filters for a class on a node. Where room is sought it does so once for each
// state of the node, unless what others do matters too.
func (w *world) ask(ctx context.Context, v *whatif.View, class, node int) *fwk.Status {
	if w.verdicts == nil || w.verdicts[class] == nil {
		return w.tx.Fits(ctx, v, node)
	}
	known := &w.verdicts[class][node]
	if version := w.tx.Version(node); !known.asked || known.version != version {
		*known = verdict{asked: true, version: version, status: w.tx.Fits(ctx, v, node)}
	}
	return known.status
}

// verdict is what the filters said of a node in a state.
type verdict struct {
	asked   bool
	version int
	status  *fwk.Status
}

// volumeReason returns the filter's own reason for nodes on which the volumes of a class are not, or
// not any more.
func (w *world) volumeReason(class, node int) string {
	if w.reaches(class, node) {
		return string(volumebinding.ErrReasonBindConflict)
	}
	return string(volumebinding.ErrReasonNodeConflict)
}

// judge reads the status of a node and keeps the reasons of those that refuse.
func (w *world) judge(node int, status *fwk.Status) (bool, error) {
	if status.IsSuccess() {
		return true, nil
	}
	if !status.IsRejected() {
		return false, fmt.Errorf("filtering node %s: %w", w.tx.Node(node).Node().Name, status.AsError())
	}
	for _, reason := range status.Reasons() {
		w.refuse(node, reason)
	}
	w.opaque = w.opaque || opaque(status)
	w.lackingDevices = w.lackingDevices || status.Plugin() == names.DynamicResources
	return false, nil
}

func (w *world) refuse(node int, reason string) {
	if w.inCopies {
		return // no explanation is wanted
	}
	if w.refused[reason] == nil {
		w.refused[reason] = map[string]bool{}
	}
	w.refused[reason][w.tx.Node(node).Node().Name] = true
}
