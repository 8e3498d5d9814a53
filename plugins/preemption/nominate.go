package preemption

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/plugins/eviction"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// nominateAll writes into the members' statuses where they will go, before anything is
// evicted. kube-scheduler writes the leader's.
func (pl *GangPreemption) nominateAll(ctx context.Context, d *demand, f *found) []error {
	var errs collected
	pl.each(ctx, len(d.pods), func(i int) {
		pod := d.pods[i]
		if node := f.plan.Nodes[pod.UID]; node != "" && pod.UID != d.leader.UID && pod.Status.NominatedNodeName != node {
			errs.add(pl.patchNomination(ctx, pod, node))
		}
	})
	return errs.list()
}

func (pl *GangPreemption) patchNomination(ctx context.Context, pod *v1.Pod, node string) error {
	var value any
	if node != "" {
		value = node
	}
	// It is of no use to a pod that is gone, nor to another of its name.
	_, _, err := eviction.PatchStatus(ctx, pl.evictor.Client, pod, map[string]any{"nominatedNodeName": value})
	if err != nil {
		return fmt.Errorf("nominating pod %s: %w", klog.KObj(pod), err)
	}
	return nil
}

// renominated queues a pod whose nomination has ended or changed, to bring its status up to
// date. It may be called under locks.
func (pl *GangPreemption) renominated(pod types.UID) {
	if pl.Leading.Given() {
		pl.stale.Add(pod)
	}
}

// keepStatuses writes what the ledger says of their nomination to the status of pods of this
// profile that wait, until the process ends: an autoscaler, or the next scheduler, would
// count on what is not so any more. It writes also where no event has reported the last
// write yet.
func (pl *GangPreemption) keepStatuses(ctx context.Context) {
	defer context.AfterFunc(ctx, pl.stale.ShutDown)()
	for {
		uid, done := pl.stale.Get()
		if done {
			return
		}
		if err := pl.keepStatus(ctx, uid); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to write a nomination; trying again", "podUID", uid)
			pl.stale.AddRateLimited(uid)
		} else {
			pl.stale.Forget(uid)
		}
		pl.stale.Done(uid)
	}
}

func (pl *GangPreemption) keepStatus(ctx context.Context, uid types.UID) error {
	pod, ok := pl.podByUID(uid)
	if !ok || pod.Spec.SchedulerName != pl.fw.ProfileName() || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		return nil
	}
	switch one, held := pl.Holds.Of(uid); {
	case !held:
		return pl.patchNomination(ctx, pod, "")
	case one.Reason == hold.Nomination:
		return pl.patchNomination(ctx, pod, one.Node)
	default:
		return nil // it is on its way to where its plan says
	}
}

// outrank ends the nominations whose place a preemptor takes.
func (pl *GangPreemption) outrank(f *found) {
	taken := map[string]bool{}
	for _, node := range f.plan.Nodes {
		taken[node] = true
	}
	for _, holder := range f.outrank {
		for _, one := range pl.Holds.NominationsOf(holder) {
			if taken[one.Node] {
				pl.Holds.DropNominations(holder) // one place less, and a gang cannot start: it gives up all of them
				break
			}
		}
	}
}
