package gang

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreScore skips Score except for later members of a gang that is laid out in a topology.
func (pl *Gang) PreScore(ctx context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	visit := visitOf(state)
	if visit == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	if err := pl.prefer(ctx, &visit.place); err != nil {
		return fwk.AsStatus(err)
	}
	if len(visit.place.neighbours)+len(visit.place.roomy) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score prefers nodes near members of the gang that are next in rank.
func (pl *Gang) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	visit := visitOf(state)
	if visit == nil {
		return 0, nil
	}
	return visit.place.score(info.Node()), nil
}

// ScoreExtensions returns none: the scores are in range as they are.
func (pl *Gang) ScoreExtensions() fwk.ScoreExtensions { return nil }
