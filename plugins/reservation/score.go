package reservation

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
)

// PreScore skips Score for pods that have nothing held for them.
func (pl *Reservation) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if cycleOf(state) == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score prefers nodes where something is held for the pod, and of those the one where it is meant for the pod; then the one
// where it suits the pod best: it covers what the pod asks for, and little is left over.
func (pl *Reservation) Score(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	c := cycleOf(state)
	if c == nil || len(c.seats[info.Node().Name]) == 0 {
		return 0, nil
	}
	seat, _ := pl.choose(c, state, pod, info)
	if seat == nil {
		return 0, nil
	}
	if seat.Meant {
		return fwk.MaxScore, nil
	}
	return max(1, int64(reservation.Suits(c.demand.Amount(), seat)*float64(fwk.MaxScore-1))), nil
}

// ScoreExtensions returns none: the scores are in range as they are.
func (pl *Reservation) ScoreExtensions() fwk.ScoreExtensions { return nil }
