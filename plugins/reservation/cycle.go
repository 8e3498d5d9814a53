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
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
	"github.com/lockstep-sh/lockstep/plugins/planner"
)

// ErrReasonElsewhere is the reason of nodes on which a pod does not find the Reservation that it
// asks for.
const ErrReasonElsewhere = "node(s) without the Reservation that the pod asks for"

const cycleKey fwk.StateKey = "lockstep.dev/" + Name

// cycle is what is held for a pod in its cycle, or in a what-if about it. A pod that has nothing
// held for it has none.
type cycle struct {
	demand holds.Demand
	// holders are the holders whose holds are no obstacle.
	holders []hold.Holder
	// named: the pod asks for a Reservation by its name, there or nowhere.
	named bool
	// seats are what is held, by node. A what-if replaces the list of a node where it changes one.
	seats map[string][]reservation.Seat
	// parts are what the pods of a what-if have taken.
	parts map[types.UID]part
}

// part is what a pod of a what-if has taken of a seat.
type part struct {
	id     hold.ID
	amount hold.Taken
	card   int
}

// Clone copies what a what-if changes.
func (c *cycle) Clone() fwk.StateData {
	copied := *c
	copied.seats, copied.parts = maps.Clone(c.seats), maps.Clone(c.parts)
	return &copied
}

// cycleOf returns what PreFilter has written; nil where nothing is held for the pod.
func cycleOf(state fwk.CycleState) *cycle {
	data, err := state.Read(cycleKey)
	if err != nil {
		return nil // there is none, as said above
	}
	c, _ := data.(*cycle)
	return c
}

// PreFilter looks up what is held for the pod. A pod that is placed by itself is sent to the node
// where it has the placement that suits it best, if it fits there; members of a gang go where
// their plan says. Where no Reservation holds anything it costs next to nothing.
func (pl *Reservation) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if why := pl.reservations.Missing(pod); why != "" {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why)
	}
	seats := pl.reservations.Seats(pod)
	if len(seats) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	c := &cycle{
		demand: holds.DemandOf(&framework.PodInfo{Pod: pod}), seats: seats,
		holders: slices.Concat(holds.Granted(state, pod), pl.reservations.Grants(pod)),
	}
	_, c.named = pod.Annotations[v1alpha1.ReservationAnnotation]
	state.Write(cycleKey, c)
	open, meant := c.open()
	if !planner.Asks(state) {
		for _, nodes := range [][]string{meant, open} {
			node, err := pl.suited(ctx, state, pod, nodes)
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

// open lists the nodes on which the pod finds something, by name, and those of them on which it is meant
// for the pod.
func (c *cycle) open() (nodes, meant []string) {
	for node, seats := range c.seats {
		best := reservation.Rank(c.demand.Amount(), seats)
		if len(best) == 0 {
			continue
		}
		if nodes = append(nodes, node); seats[best[0]].Meant {
			meant = append(meant, node)
		}
	}
	slices.Sort(nodes)
	slices.Sort(meant)
	return nodes, meant
}

// suited returns the node where a pod that is placed by itself best uses what is held for it; empty if it
// fits on none of them.
func (pl *Reservation) suited(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []string) (string, error) {
	if len(nodes) == 0 {
		return "", nil
	}
	attempt := &gang.Attempt{
		Group: hold.SinglePod(pod.UID), Leader: pod.UID, Strict: true, Gangs: []gang.Need{{Min: 1, Pending: []*v1.Pod{pod}}},
	}
	if stands := planner.UnplacedOf(state); stands != nil {
		attempt = stands.Attempt
	} else if _, _, member := gang.KeyOf(pod); member {
		return "", nil // its gang's plan gives it a node, or it is one too many
	}
	plan, err := pl.planner().PlanOn(ctx, attempt, nodes)
	if err != nil {
		return "", fmt.Errorf("looking at what is held for pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return plan[pod.UID], nil
}

// PreFilterExtensions returns none: what-ifs report pods that come and go by the hooks.
func (pl *Reservation) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses nodes that would be oversold: a pod uses one placement at most, and others that it owns
// are held for their other owners. It costs next to nothing for a pod that owns none.
func (pl *Reservation) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	seats := c.seats[info.Node().Name]
	if len(seats) == 0 {
		if c.named {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ErrReasonElsewhere)
		}
		return nil
	}
	if _, ok := pl.choose(c, state, pod, info); !ok {
		return fwk.NewStatus(fwk.Unschedulable, holds.ErrReasonHeld)
	}
	return nil
}

// choose returns the seat on a node that the pod of a cycle is to use; nil for none. It returns
// false where the pod does not fit beside what is held there for others.
func (pl *Reservation) choose(c *cycle, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) (*reservation.Seat, bool) {
	seats, need := c.seats[info.Node().Name], c.demand.Amount()
	held, _ := pl.holds.Others(info, c.holders...)
	for i := range seats {
		held = held.Plus(seats[i].Left)
	}
	for _, i := range reservation.Rank(need, seats) {
		if c.demand.Fits(info, held.Minus(seats[i].Left.Part(need))) && pl.dealt(c, state, pod, info, &seats[i]) {
			return &seats[i], true
		}
	}
	return nil, !c.named && c.demand.Fits(info, held)
}

// SimulatesNodeLocally marks that what is held on a node is a matter of the pods on it.
func (pl *Reservation) SimulatesNodeLocally() {}

// SimulateAddTask makes a pod that comes to a node take its part of what is held for it there. A pod that
// was there already has it: the ledger knows.
func (pl *Reservation) SimulateAddTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toAdd fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	c, pod := cycleOf(state), toAdd.GetPod()
	if c == nil || len(c.seats[node.Node().Name]) == 0 {
		return nil
	}
	if one, ok := pl.holds.Of(pod.UID); ok && one.From != "" {
		return nil
	}
	seats := slices.Clone(c.seats[node.Node().Name])
	need, own := holds.DemandOf(toAdd).Amount(), pl.reservations.Grants(pod)
	for _, i := range reservation.Rank(need, seats) {
		if s := &seats[i]; slices.Contains(own, s.Holder) {
			amount := s.Left.Part(need)
			s.Left, s.Taken = s.Left.Minus(amount), s.Once
			c.seats[s.Node] = seats
			if c.parts == nil {
				c.parts = map[types.UID]part{}
			}
			c.parts[pod.UID] = part{id: s.ID, amount: amount, card: s.Card}
			return nil
		}
	}
	return nil
}

// SimulateRemoveTask makes a pod of a what-if give back its part. What a running pod has of a placement
// stays held: an eviction does not free it.
func (pl *Reservation) SimulateRemoveTask(_ context.Context, state fwk.CycleState, _ *v1.Pod, toRemove fwk.PodInfo, node fwk.NodeInfo) *fwk.Status {
	c := cycleOf(state)
	if c == nil {
		return nil
	}
	p, ok := c.parts[toRemove.GetPod().UID]
	if !ok {
		return nil
	}
	delete(c.parts, toRemove.GetPod().UID)
	seats := slices.Clone(c.seats[node.Node().Name])
	for i := range seats {
		if s := &seats[i]; s.ID == p.id {
			s.Left, s.Taken = s.Left.Plus(p.amount), false
		}
	}
	c.seats[node.Node().Name] = seats
	return nil
}
