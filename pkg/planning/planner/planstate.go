package planner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/placement"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// planState is the cluster during one plan, on a what-if transaction. It adapts the framework to placement, which knows
// only indexes.
type planState struct {
	*Planner
	tx *whatif.Transaction
	// base is the state before any member was placed.
	base whatif.Mark
	// lostPlace is [Plan.LostPlace].
	lostPlace bool
	mode
	asked
	findings
}

// mode is how a plan is made.
type mode struct {
	// coupled: members refer to each other. inCopies: this is a simulation, and the filters get copies of their state with
	// pods added and removed.
	coupled, inCopies bool
	// unscored: only whether members fit matters, not where best.
	unscored bool
}

// oneByOne reports whether each member is prepared and scored anew, as kube-scheduler would, on a snapshot that
// contains the earlier ones.
func (m mode) oneByOne() bool { return m.coupled && !m.inCopies }

// asked is the members to place, and what their gangs ask for.
type asked struct {
	classes []*class
	pods    []*v1.Pod // by member
	classOf []int     // by member
	// uses counts the pods of the attempt that have each claim.
	uses map[podclass.ClaimKey]int
	// minResources is what gangs ask for beside their minimums, by gang; nil for none.
	minResources []*minResources
	// emptyCluster is how much of a gang that is hopeless would fit into an empty cluster, for users.
	emptyCluster string
	// outstanding is what other gangs that have begun will still take; it is subtracted for minResources.
	outstanding []gangstate.Outstanding
	// supplies are the free volumes by the spec of the claims they suit.
	supplies map[string]*supply
	// volumeTakenBy is the storage class of which a member takes a volume, if volumes are counted.
	volumeTakenBy map[types.UID]string
}

// findings is what plugins said of nodes and members, and what nodes lacked.
type findings struct {
	// refused is the reasons of nodes that took no member, for the explanation.
	refused map[string]map[string]bool // reason -> node names
	// refusedFor is why filters keep a class off a node, whatever is free there, beside the reasons that ruledOut finds.
	refusedFor map[slot]string
	// emptyNodes are what [planState.whenEmpty] has found, and nodesByLabel what [planState.nodesByDomain] has.
	emptyNodes   map[slot]emptyNode
	nodesByLabel map[string]map[string][]int
	// never are the nodes that a class cannot use, wherever members of the attempt are placed.
	never map[slot]bool
	// closedForGood are the nodes that a class could not use in an empty cluster.
	closedForGood map[slot]bool
	lacking       map[v1.ResourceName]bool
	// lackingDevices: a node was refused for its devices.
	lackingDevices bool
	// opaque: a plugin that may read more of a pod than its shape refused a node.
	opaque bool
	// notAdmitted is why a member was not admitted at all in the current state.
	notAdmitted string
	// notAdmittedPods are the members that a plugin rejected before any node was visited.
	notAdmittedPods map[types.UID]bool
}

var _ placement.World = &planState{}

// alike groups the classes by what their members take of a node: the same requests and ports, with the same holders
// exempt.
func (w *planState) alike() (kinds [][]int) {
	for class, c := range w.classes {
		kind := slices.IndexFunc(kinds, func(classes []int) bool { return c.takesSame(w.classes[classes[0]]) })
		if kind < 0 {
			kinds = append(kinds, []int{class})
		} else {
			kinds[kind] = append(kinds[kind], class)
		}
	}
	return kinds
}

// Label returns a label of a node.
func (w *planState) Label(node int, key string) (string, bool) {
	value, ok := w.tx.Node(node).Node().Labels[key]
	return value, ok
}

// Mark returns a mark for Undo.
func (w *planState) Mark() int { return int(w.tx.Checkpoint()) }

// Undo takes back the placements since a mark.
func (w *planState) Undo(ctx context.Context, mark int) error {
	return w.tx.Rollback(ctx, whatif.Mark(mark))
}

// viewOf returns the view of a class for one of its members. The class is prepared once; if members are placed one by
// one, each is. A nil view with a nil error means that plugins reject the member on every node.
func (w *planState) viewOf(ctx context.Context, class int, pod *v1.Pod) (*whatif.View, error) {
	c := w.classes[class]
	if w.oneByOne() {
		c.rejected = ""
		return w.prepare(ctx, c, pod)
	}
	if c.view == nil && c.rejected == "" {
		v, err := w.prepare(ctx, c, c.Info.Pod)
		if v == nil || err != nil {
			return nil, err
		}
		c.view = v
		if w.inCopies && v.Local() && !w.volatile(class) {
			c.verdicts = make([]verdict, w.tx.Len())
		}
	}
	if c.view == nil || !c.Claims.Any {
		return c.view, nil
	}
	own, status := w.tx.ViewFor(ctx, c.view, pod)
	if ok, err := isSuccess(status, "preparing", pod); !ok {
		w.notAdmitted, w.notAdmittedPods[pod.UID] = status.Message(), true
		return nil, err
	}
	return own, nil
}

// isSuccess reports whether plugins accepted a pod rather than rejected it. An error says what was done with the pod.
func isSuccess(status *fwk.Status, doing string, pod *v1.Pod) (bool, error) {
	if status.IsSuccess() || status.IsRejected() {
		return status.IsSuccess(), nil
	}
	return false, fmt.Errorf("%s pod %s/%s: %w", doing, pod.Namespace, pod.Name, status.AsError())
}

// volatile reports whether placing members on a node may change which other nodes fit a class. The class must be
// prepared.
func (w *planState) volatile(class int) bool {
	return w.coupled || w.classes[class].Claims.Contends && w.classes[class].counted == "" ||
		w.classes[class].view.Spreads()
}

// prepare prepares a pod of a class for the filters. It returns nil if plugins reject it.
func (w *planState) prepare(ctx context.Context, c *class, pod *v1.Pod) (*whatif.View, error) {
	v, status := w.tx.View(ctx, pod, c.holders...)
	if ok, err := isSuccess(status, "preparing", pod); !ok {
		c.rejected, c.rejectedForGood = cmp.Or(status.Message(), "rejected by "+status.Plugin()), isPermanent(status)
		c.rejectedBy = status.Plugin()
		return nil, err
	}
	return v, nil
}

// admits reports whether the pod of a view may be placed at all in the current state.
func (w *planState) admits(ctx context.Context, v *whatif.View) (bool, error) {
	status := w.tx.Admits(ctx, v)
	ok, err := isSuccess(status, "admitting", v.Pod)
	if !ok {
		w.notAdmitted = status.Message()
	}
	return ok, err
}

// placeMember places a member in the transaction.
func (w *planState) placeMember(ctx context.Context, member, node int) error {
	c := w.classes[w.classOf[member]]
	return w.tx.Add(ctx, c.podInfo(w.pods[member]), node)
}

// sweep filters nodes of a scope from a position on, in parallel, until it has found target feasible ones with room for
// want members. It returns them in scope order, and the position after the last node visited.
func (w *planState) sweep(ctx context.Context, v *whatif.View, class int, scope []int, from, target,
	want int) (found []int, next int, err error) {
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

// operation names the planner's goroutines in kube-scheduler's metrics.
const operation = "Plan"

// reasonExcluded is why a node is refused that no plugin's PreFilter leaves to a pod.
const reasonExcluded = "excluded by PreFilter result"

// minChunk keeps each round worth starting goroutines.
const minChunk = 64

// filter returns the nodes that a class fits on.
func (w *planState) filter(ctx context.Context, v *whatif.View, class int, nodes []int) ([]int, error) {
	candidates := make([]int, 0, len(nodes))
	for _, node := range nodes {
		info := w.tx.Node(node)
		if !v.Allows(info) {
			w.never[slot{class, node}] = true
			w.recordExclusion(class, node)
			continue
		}
		if w.volumeSlots(class, node) == 0 {
			w.never[slot{class, node}] = !w.reaches(class, node)
			w.recordRefusal(node, w.volumeReason(class, node))
			continue
		}
		if n, scarce := w.slots(class, node); n == 0 {
			w.recordLack(class, node, scarce)
			continue
		}
		candidates = append(candidates, node)
	}
	statuses := make([]*fwk.Status, len(candidates))
	if len(candidates) < 8 {
		for i, node := range candidates {
			statuses[i] = w.fits(ctx, v, class, node)
		}
	} else {
		var failed atomic.Bool
		w.fw.Parallelizer().Until(ctx, len(candidates), func(i int) {
			if !failed.Load() {
				statuses[i] = w.fits(ctx, v, class, candidates[i])
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
		if lastsWhenEmpty(ctx, statuses[i], v.Pod, w.tx.Node(node).Node()) {
			w.closedForGood[slot{class, node}] = true
		}
		if ok, err := w.readStatus(class, node, statuses[i]); err != nil {
			return nil, err
		} else if ok {
			feasible = append(feasible, node)
		}
	}
	return slices.Clip(feasible), ctx.Err()
}

// scarcity returns why bounds rule out a node: too little left, or held for others.
func (w *planState) scarcity(class, node int, scarce v1.ResourceName) string {
	if w.holds.Check(w.classes[class].Demand, w.tx.Node(node), w.classes[class].holders...) != nil {
		info := w.tx.Node(node)
		has, used := info.GetAllocatable(), info.GetRequested()
		if scarce != v1.ResourcePods &&
			ledger.Amount(has, scarce)-ledger.Amount(used, scarce) >= w.classes[class].Demand.Request[scarce] {
			return ledger.ErrReasonHeld
		}
	}
	if scarce == v1.ResourcePods {
		return "Too many pods"
	}
	return "Insufficient " + string(scarce)
}

// fits runs the filters for a class on a node. A simulation runs them once per version of the node, unless other nodes
// matter too.
func (w *planState) fits(ctx context.Context, v *whatif.View, class, node int) *fwk.Status {
	verdicts := w.classes[class].verdicts
	if verdicts == nil {
		return w.tx.Fits(ctx, v, node)
	}
	known := &verdicts[node]
	if version := w.tx.Version(node); !known.asked || known.version != version {
		*known = verdict{asked: true, version: version, status: w.tx.Fits(ctx, v, node)}
	}
	return known.status
}

// verdict is the filters' status for one version of a node.
type verdict struct {
	asked   bool
	version int
	status  *fwk.Status
}

// volumeReason returns the filter's own reason for nodes that do not reach the volumes of a class, or no longer have
// free ones.
func (w *planState) volumeReason(class, node int) string {
	if w.reaches(class, node) {
		return string(volumebinding.ErrReasonBindConflict)
	}
	return string(volumebinding.ErrReasonNodeConflict)
}

// readStatus reports whether a node fits, and records the reasons of a refusal.
func (w *planState) readStatus(class, node int, status *fwk.Status) (bool, error) {
	if status.IsSuccess() {
		delete(w.refusedFor, slot{class, node})
		return true, nil
	}
	if !status.IsRejected() {
		return false, fmt.Errorf("filtering node %s: %w", w.tx.Node(node).Node().Name, status.AsError())
	}
	if reason := w.readUnusable(class, node, status); reason != "" {
		w.recordRefusal(node, reason)
	} else {
		for _, reason := range status.Reasons() {
			w.recordRefusal(node, reason)
		}
	}
	w.opaque = w.opaque || opaque(status)
	w.lackingDevices = w.lackingDevices || status.Plugin() == names.DynamicResources
	return false, nil
}

// recordExclusion records that PreFilter leaves a node to no pod of a class.
func (w *planState) recordExclusion(class, node int) {
	if w.inCopies {
		return // no explanation is wanted
	}
	reason := w.ruledOut(class, node)
	if reason == "" {
		reason = reasonExcluded
		w.refusedFor[slot{class, node}] = reason
	}
	w.recordRefusal(node, reason)
}

// recordLack records that bounds rule out a node for a class. A node that the class may not use lacks nothing.
func (w *planState) recordLack(class, node int, scarce v1.ResourceName) {
	if w.inCopies {
		return // no explanation is wanted
	}
	if reason := w.ruledOut(class, node); reason != "" {
		w.recordRefusal(node, reason)
		return
	}
	w.lacking[scarce] = true
	w.recordRefusal(node, w.scarcity(class, node, scarce))
}

func (w *planState) recordRefusal(node int, reason string) {
	if w.inCopies {
		return // no explanation is wanted
	}
	nested.Set(w.refused, reason, w.tx.Node(node).Node().Name, true)
}
