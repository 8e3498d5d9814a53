package preemption

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// recordVictims records events on the PodGroups of gangs that lost pods, and logs each loss.
func (e *execution) recordVictims(ctx context.Context) {
	for _, one := range e.f.losses() {
		n := 0
		for _, pod := range one.Pods {
			if e.hasEvicted(pod.UID) {
				n++
			}
		}
		if n == 0 {
			continue
		}
		text := one.text()
		klog.FromContext(ctx).Info("Evicted pods to make room", "victim", one.Name(), "pods", n, "preemptor", e.d.String(),
			"why", text+": "+e.d.textWorth(one.Gain, one.Cost))
		for _, gang := range one.Gangs {
			loses := one.Kind == victim.Whole ||
				slices.ContainsFunc(one.Pods, func(p victim.Pod) bool { return p.Part == "" || p.Part == gang.Key.String() })
			if gang.Object.UID != "" && loses {
				gangLost(e.f.preemption, one.Kind, text, gang).Record(e.fw.EventRecorder())
			}
		}
	}
}

// tellEvicted says on the PodGroups of gangs that go whole, and on what made their pods, that they were evicted, and
// who makes their pods again. It stands there until there are others. records are what recordEvictions returned.
func (e *execution) tellEvicted(ctx context.Context, p *evictions.Preemption, together []gangstate.RunningGang,
	records map[gangspec.Key]evictionrecord.Record, left *evictions.LeftToOwner, failing map[types.UID]bool) {
	now := e.clock.Now()
	for _, one := range together {
		first, record := one.Running[0].Pod, records[one.Key]
		owner := metav1.GetControllerOfNoCopy(first)
		message := fmt.Sprintf("%s; %s", gangstate.TextEvicted(one.Key, record),
			successors(first, left.Has(first.UID), owner != nil && failing[owner.UID]))
		if owner != nil {
			evicted(p, first.Namespace, owner, record, message).Record(e.fw.EventRecorder())
		}
		if !hasCommunityGroup(one) {
			continue // lockstep-controller writes native PodGroups by their pods
		}
		if err := status.WriteScheduled(ctx, e.groups, one.Key, v1alpha1.ReasonEvicted, message, now); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to record on the PodGroup that its gang was evicted", "gang", one.Key)
		}
	}
}

// hasCommunityGroup reports whether a PodGroup of the community describes a gang.
func hasCommunityGroup(one gangstate.RunningGang) bool {
	return one.Object.UID != "" && one.Object.Kind == gangspec.Community
}

// failingJobs returns the Jobs that are sure to fail when their gangs go whole, of those that make pods again on their
// own.
func (e *execution) failingJobs(ctx context.Context, together []gangstate.RunningGang,
	left *evictions.LeftToOwner) map[types.UID]bool {
	failing := map[types.UID]bool{}
	for _, one := range together {
		first := one.Running[0].Pod
		owner := objectstate.ControllingJob(first)
		if owner == nil || left.Has(first.UID) || first.Labels[v1alpha1.JobSetNameLabel] != "" {
			continue
		}
		deleted := 0
		for _, member := range one.Running {
			if of := metav1.GetControllerOfNoCopy(member.Pod); of != nil && of.UID == owner.UID {
				deleted++
			}
		}
		job, err := e.evictor.Jobs.Client.Jobs(first.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil {
			klog.FromContext(ctx).V(2).Info("Failed to find out whether a Job fails by an eviction", "job",
				klog.KRef(first.Namespace, owner.Name), "err", err)
			continue
		}
		failing[owner.UID] = job.UID == owner.UID && objectstate.JobFailsBy(job, deleted)
	}
	return failing
}

// recordEvictions records on the PodGroups of gangs that are about to go whole when and for whom they go, and what they
// have, so that their queues ask for it until their pods are made again: not of pods without a controller. It returns
// the records of all gangs.
func (e *execution) recordEvictions(ctx context.Context, p *evictions.Preemption,
	together []gangstate.RunningGang) map[gangspec.Key]evictionrecord.Record {
	records, now := map[gangspec.Key]evictionrecord.Record{}, e.clock.Now()
	for _, one := range together {
		var pods []*v1.Pod
		for _, member := range one.Running {
			pods = append(pods, member.Pod)
		}
		record := evictionrecord.New(now, p.Preemptor)
		record.Gang = one.Key.String()
		if metav1.GetControllerOfNoCopy(pods[0]) != nil {
			record.Demand = e.Queues.EvictedDemand(pods)
		}
		if job := objectstate.ControllingJob(pods[0]); job != nil {
			record.Job = job.Name
		}
		records[one.Key] = record
		if !hasCommunityGroup(one) {
			continue
		}
		if err := status.WriteEvicted(ctx, e.groups, one.Key, one.Object.UID, &record); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to record the eviction of a gang; its queue does not ask for what it has",
				"gang", one.Key)
		}
	}
	return records
}

// dropRecords removes the records from the PodGroups of gangs of which no pod was evicted after all.
func (e *execution) dropRecords(ctx context.Context, together []gangstate.RunningGang) {
	for _, one := range together {
		if !hasCommunityGroup(one) {
			continue
		}
		if err := status.WriteEvicted(ctx, e.groups, one.Key, one.Object.UID, nil); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to remove the record of an eviction that did not happen", "gang", one.Key)
		}
	}
}

// successors says who makes the pods of an evicted gang again, one of which is given, and when if that is known.
// suspended and fails are what becomes of its Job by the eviction.
func successors(pod *v1.Pod, suspended, fails bool) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	switch {
	case owner == nil:
		return "its pods have no controller that makes them again"
	case suspended:
		return fmt.Sprintf("Job %q is suspended, and makes its pods again once these have ended", owner.Name)
	case pod.Labels[v1alpha1.JobSetNameLabel] != "":
		return fmt.Sprintf("JobSet %q makes its pods again at once if one of its Jobs fails by this, "+
			"up to its maxRestarts; "+
			"otherwise its Jobs do after a pause of up to 10 minutes", pod.Labels[v1alpha1.JobSetNameLabel])
	case fails:
		return fmt.Sprintf("Job %q fails by this, since its evicted pods count as failed and its backoffLimit is used up; "+
			"%s: %s or a podFailurePolicy avoids that",
			owner.Name, v1alpha1.EvictByAnnotation, v1alpha1.EvictBySuspend)
	case objectstate.ControllingJob(pod) != nil:
		return fmt.Sprintf("Job %q makes its pods again after a pause of up to 10 minutes, "+
			"unless its backoffLimit is used up; %s: %s avoids both", owner.Name,
			v1alpha1.EvictByAnnotation, v1alpha1.EvictBySuspend)
	default:
		return fmt.Sprintf("%s %q makes its pods again", owner.Kind, owner.Name)
	}
}
