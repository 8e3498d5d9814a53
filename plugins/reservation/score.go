package reservation

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// PreScore skips Score for pods without slots.
func (pl *Reservation) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if cycleOf(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score prefers nodes with slots for the pod, and of those the one with a slot for its migration; then the one that
// suits the pod best: it covers most of the request, and little is left over.
func (pl *Reservation) Score(_ context.Context, state fwk.CycleState, pod *v1.Pod,
	info fwk.NodeInfo) (int64, *fwk.Status) {
	c := cycleOf(state)
	if c == nil || len(c.slots[info.Node().Name]) == 0 {
		return 0, nil
	}
	slot, _ := pl.chooseSlot(c, state, pod, info)
	if slot == nil {
		return 0, nil
	}
	if slot.ForMigration {
		return fwk.MaxScore, nil
	}
	return max(1, int64(reservationstate.Suits(c.demand.Amount(), slot)*float64(fwk.MaxScore-1))), nil
}

// ScoreExtensions returns none: the scores are in range.
func (pl *Reservation) ScoreExtensions() fwk.ScoreExtensions { return nil }
