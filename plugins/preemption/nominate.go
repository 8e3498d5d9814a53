package preemption

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/kube/workloop"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// nominateAll writes the members' nominated nodes into their statuses before anything is evicted. kube-scheduler writes
// the leader's.
func (e *execution) nominateAll(ctx context.Context) []error {
	return evictions.InParallel(ctx, len(e.d.gang.Pods), func(i int) error {
		pod := e.d.gang.Pods[i]
		node := e.f.plan.Nodes[pod.UID]
		if node == "" || pod.UID == e.d.leader.UID || pod.Status.NominatedNodeName == node {
			return nil
		}
		return e.patchNomination(ctx, pod, node)
	})
}

func (pl *GangPreemption) patchNomination(ctx context.Context, pod *v1.Pod, node string) error {
	var value any
	if node != "" {
		value = node
	}
	// A pod that is gone, or another of its name, needs no nomination.
	_, _, err := evictions.PatchStatus(ctx, pl.evictor.Client, pod, map[string]any{"nominatedNodeName": value})
	if err != nil {
		return fmt.Errorf("nominating pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}

// queueNomination queues a pod whose nomination has ended or changed for a status update. It may be called under locks.
func (pl *GangPreemption) queueNomination(pod types.UID) {
	if pl.Leading.Given() {
		pl.staleNominations.Add(pod)
	}
}

// syncNominations writes the ledger's nominations to the statuses of this profile's pending pods until ctx is done: an
// autoscaler, or the next scheduler, relies on them. It also writes if the informer has not seen the last write yet.
func (pl *GangPreemption) syncNominations(ctx context.Context) {
	workloop.Run(ctx, pl.staleNominations, pl.syncNomination, "Failed to write a nomination; trying again")
}

func (pl *GangPreemption) syncNomination(ctx context.Context, uid types.UID) error {
	pod, ok := pl.evictor.Pod(uid)
	if !ok || pod.Spec.SchedulerName != pl.fw.ProfileName() || !objectstate.AwaitsNode(pod) {
		return nil
	}
	switch one, held := pl.Holds.HoldOf(uid); {
	case !held:
		return pl.patchNomination(ctx, pod, "")
	case one.Reason == hold.Nomination:
		return pl.patchNomination(ctx, pod, one.Node)
	default:
		return nil // it is on its way to its planned node
	}
}
