package gang

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreScore skips Score but for later members of a gang that prefers a topology.
func (pl *Gang) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if visit := visitOf(state); visit != nil && visit.preferredKey != "" && len(visit.preferredValues) > 0 {
		return nil
	}
	return fwk.NewStatus(fwk.Skip)
}

// Score prefers nodes in domains where members of the gang are.
func (pl *Gang) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	visit := visitOf(state)
	if visit != nil && visit.preferredValues.Has(info.Node().Labels[visit.preferredKey]) {
		return fwk.MaxScore, nil
	}
	return 0, nil
}

// ScoreExtensions returns none: the scores are in range as they are.
func (pl *Gang) ScoreExtensions() fwk.ScoreExtensions { return nil }
