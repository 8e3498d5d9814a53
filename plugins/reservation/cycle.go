package reservation

import (
	"context"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/cyclestate"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/devicesimulation"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// ErrReasonElsewhere is the reason of nodes without the Reservation that a pod asks for.
const ErrReasonElsewhere = "node(s) without the Reservation that the pod asks for"

const cycleKey fwk.StateKey = "lockstep.dev/" + Name

// cycle is what is held for a pod in its cycle, or in a what-if; nil if nothing is.
type cycle struct {
	demand ledger.Demand
	// holders are the holders whose holds the pod may use.
	holders []hold.Holder
	// movable reports whether a hold ends when its pod gets another place: what it has of a slot counts as left.
	movable func(hold.Hold) bool
	// named: the pod asks for a Reservation by name, and must use it.
	named bool
	// slots are what is held, by node. A what-if replaces the list of a node that it changes.
	slots map[string][]reservationstate.Slot
	// parts are what the pods of a what-if have taken.
	parts map[types.UID]part
}

// part is what a pod of a what-if has taken of a slot.
type part struct {
	id     hold.ID
	amount hold.Taken
	card   int
}

// Clone copies what a what-if changes.
func (c *cycle) Clone() fwk.StateData {
	copied := *c
	copied.slots, copied.parts = maps.Clone(c.slots), maps.Clone(c.parts)
	return &copied
}

// cycleOf returns what PreFilter has written; nil if nothing is held for the pod.
func cycleOf(state fwk.CycleState) *cycle {
	return cyclestate.Read[*cycle](state, cycleKey)
}

// PreFilter looks up what is held for the pod. It sends a pod that is placed alone to the node with its best placement,
// if it fits there; members of a gang follow their plan. It is cheap if no Reservation holds anything.
func (pl *Reservation) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if why := pl.reservations.Missing(pod); why != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	if reservepods.IsReservePod(pod) {
		return pl.withoutDevices(pod, nodes)
	}
	granted := ledger.Granted(state, pod)
	// A simulation plans anew where the pods of the granted holders go; in its own cycle, the pod alone may go elsewhere.
	movable := func(h hold.Hold) bool { return h.For == pod.UID }
	if whatif.IsSimulated(state) {
		movable = func(h hold.Hold) bool { return h.Reason != hold.Reservation && slices.Contains(granted, h.Holder) }
	}
	slots := pl.reservations.Slots(pod, movable)
	name, named := reservationstate.NamedBy(pod)
	if len(slots) == 0 && !named {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	c := &cycle{
		demand: ledger.DemandOf(&framework.PodInfo{Pod: pod}), slots: slots, movable: movable, named: named,
		holders: slices.Concat(granted, pl.reservations.Grants(pod)),
	}
	state.Write(cycleKey, c)
	open, meant := c.nodesWithSlots()
	if c.named && len(open) == 0 {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, textNothingLeft(name))
	}
	if !whatif.IsSimulated(state) {
		for _, nodes := range [][]string{meant, open} {
			node, err := pl.bestNode(ctx, state, pod, nodes)
			if err != nil {
				return nil, fwk.AsStatus(err)
			}
			if node != "" {
				return &fwk.PreFilterResult{NodeNames: sets.New(node)}, nil
			}
		}
	}
	if c.named {
		return &fwk.PreFilterResult{NodeNames: sets.New(open...)}, nil
	}
	return nil, nil
}

// withoutDevices leaves a reserve pod the nodes that list its extended resources themselves, where a DeviceClass backs
// these: devices are allocated to pods that exist.
func (pl *Reservation) withoutDevices(pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	manager := pl.handle.SharedDRAManager()
	if manager == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	var allowed sets.Set[string] // nil: all
	for _, name := range slices.Sorted(maps.Keys(ledger.DemandOf(&framework.PodInfo{Pod: pod}).Request)) {
		class := devicesimulation.Backing(manager, name)
		if class == "" {
			continue
		}
		list := sets.New[string]()
		for _, info := range nodes {
			node := info.Node().Name
			if (allowed == nil || allowed.Has(node)) && ledger.Amount(info.GetAllocatable(), name) > 0 {
				list.Insert(node)
			}
		}
		if allowed = list; len(list) == 0 {
			return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf(
				"no node lists %s, and a Reservation cannot hold devices of DeviceClass %q", name, class))
		}
	}
	if allowed == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return &fwk.PreFilterResult{NodeNames: allowed}, nil
}

func textNothingLeft(name string) string {
	return fmt.Sprintf("annotation %s asks for Reservation %q, of which other pods use all",
		v1alpha1.ReservationAnnotation, name)
}

// nodesWithSlots lists the nodes with slots for the pod, by name, and those of them with a slot for its migration.
func (c *cycle) nodesWithSlots() (nodes, meant []string) {
	for node, slots := range c.slots {
		best := reservationstate.Rank(c.demand.Amount(), slots)
		if len(best) == 0 {
			continue
		}
		if nodes = append(nodes, node); slots[best[0]].ForMigration {
			meant = append(meant, node)
		}
	}
	slices.Sort(nodes)
	slices.Sort(meant)
	return nodes, meant
}

// bestNode returns the node where a pod that is placed alone best uses what is held for it; empty if it fits on none.
func (pl *Reservation) bestNode(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []string) (string, error) {
	if len(nodes) == 0 {
		return "", nil
	}
	attempt := planner.AttemptOf(state)
	if attempt == nil {
		if !pl.gangs.InNoGang(pod) {
			return "", nil // its gang's plan gives it a node
		}
		attempt = gangstate.SinglePodAttempt(pod, gangstate.Need{})
	}
	plan, err := pl.planner().PlanOn(ctx, attempt, nodes)
	if err != nil {
		return "", fmt.Errorf("looking at what is held for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return plan[pod.UID], nil
}

// PreFilterExtensions returns none: the Simulate hooks report pods that come and go.
func (pl *Reservation) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses nodes that would be oversold: a pod uses at most one placement, and others that it owns are held for
// their other owners. It is cheap for a pod that owns none.
func (pl *Reservation) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	slots := c.slots[info.Node().Name]
	if len(slots) == 0 {
		if c.named {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonElsewhere)
		}
		return nil
	}
	if _, ok := pl.chooseSlot(c, state, pod, info); !ok {
		return fwk.NewStatus(fwk.Unschedulable, ledger.ErrReasonHeld)
	}
	return nil
}

// chooseSlot returns the slot on a node that the pod of a cycle would use; nil for none. It returns false if the pod
// does not fit beside what is held there for others.
func (pl *Reservation) chooseSlot(c *cycle, state fwk.CycleState, pod *v1.Pod,
	info fwk.NodeInfo) (*reservationstate.Slot, bool) {
	slots, need := c.slots[info.Node().Name], c.demand.Amount()
	held, _ := pl.holds.Others(info, c.holders...)
	for i := range slots {
		held = held.Plus(slots[i].Left)
	}
	for _, i := range reservationstate.Rank(need, slots) {
		if c.demand.Fits(info, held.Minus(slots[i].Left.Part(need))) && pl.cardFits(c, state, pod, info, &slots[i]) {
			return &slots[i], true
		}
	}
	return nil, !c.named && c.demand.Fits(info, held)
}

// SimulatesNodeLocally marks that only pods on a node matter for what is held there.
func (pl *Reservation) SimulatesNodeLocally() {}

// SimulateAddTask makes a pod that comes to a node take its part of what is held for it there. A pod that was there has
// it already, by the ledger.
func (pl *Reservation) SimulateAddTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toAdd fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	c, pod := cycleOf(state), toAdd.GetPod()
	if c == nil || len(c.slots[node.Node().Name]) == 0 {
		return nil
	}
	if _, uses := pl.reservations.Allocation(pod); uses {
		return nil
	}
	if one, ok := pl.holds.HoldOf(pod.UID); ok && one.From != "" && !c.movable(one) {
		return nil
	}
	slots := slices.Clone(c.slots[node.Node().Name])
	need, own := ledger.DemandOf(toAdd).Amount(), pl.reservations.Grants(pod)
	for _, i := range reservationstate.Rank(need, slots) {
		if s := &slots[i]; slices.Contains(own, s.Holder) {
			amount := s.Left.Part(need)
			s.Left, s.Taken = s.Left.Minus(amount), s.SingleUse
			c.slots[s.Node] = slots
			if c.parts == nil {
				c.parts = map[types.UID]part{}
			}
			c.parts[pod.UID] = part{id: s.ID, amount: amount, card: s.Card}
			return nil
		}
	}
	return nil
}

// SimulateRemoveTask makes a pod of a what-if return its part. What a running pod has of a placement stays held: an
// eviction does not free it.
func (pl *Reservation) SimulateRemoveTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toRemove fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	p, ok := c.parts[toRemove.GetPod().UID]
	if !ok {
		return nil
	}
	delete(c.parts, toRemove.GetPod().UID)
	slots := slices.Clone(c.slots[node.Node().Name])
	for i := range slots {
		if s := &slots[i]; s.ID == p.id {
			s.Left, s.Taken = s.Left.Plus(p.amount), false
		}
	}
	c.slots[node.Node().Name] = slots
	return nil
}
