package gang

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// EventsToRegister returns what may bring nodes into the domain in which members that come later have to be. Members
// that wait for their gang are behind the gate: the waiting room gets the events that could help a gang
// (pkg/admission/waitingroom/clusterevents.go), and lets its leader through in its turn.
func (pl *Gang) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeLabel},
			QueueingHintFn: pl.afterNodeChange},
	}, nil
}

// afterNodeChange makes kube-scheduler's queue try members again that the gate lets through. It skips pods in no gang
// without a lock.
func (pl *Gang) afterNodeChange(_ klog.Logger, pod *v1.Pod, _, _ any) (fwk.QueueingHint, error) {
	if pl.gangs.InNoGang(pod) {
		return fwk.QueueSkip, nil
	}
	var refusal string
	pl.gangs.WithGangs(func(s *gangstate.Gangs) { _, refusal = s.Queue(pod) })
	if refusal != "" {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// PreEnqueue admits the leaders of complete groups, members that a plan
// has placed, members of gangs that run already, and pods outside gangs. It runs
// under the queue's lock, for every pod, and does a few look-ups.
func (pl *Gang) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	if gangspec.CheckPod(pod) != nil {
		return nil // PreFilter tells why it waits
	}
	if pl.gangs.InNoGang(pod) {
		pl.order.Forget(pod.UID) // it may have left a gang
		if !pl.gangs.Enters(pod) {
			return waitsForTurn()
		}
		return nil
	}
	var rank turns.Rank
	var refusal string
	var alone bool
	pl.gangs.WithGangs(func(s *gangstate.Gangs) {
		rank, refusal = s.Queue(pod)
		alone = s.IsPlacedAlone(pod)
	})
	if refusal != "" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, refusal)
	}
	if alone && !pl.gangs.Enters(pod) {
		return waitsForTurn()
	}
	pl.order.Freeze(pod.UID, rank)
	return nil
}

// waitsForTurn is the status of a pod that is placed alone, and did not fit.
func waitsForTurn() *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "the pod did not fit, and waits for its turn")
}

// SignPod keeps kube-scheduler's batching working for pods outside gangs, whose
// placement this plugin does not decide, and refuses it for members: they
// go where their plan puts them.
func (pl *Gang) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if pl.gangs.InNoGang(pod) {
		return nil, nil
	}
	return nil, fwk.NewStatus(fwk.Unschedulable, "members of gangs follow a plan")
}
