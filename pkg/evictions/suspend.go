package evictions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/jobsuspension"
	"github.com/lockstep-sh/lockstep/pkg/status"
)

// EventSuspendFailed is on a Job that could not be suspended; its pods are deleted.
const EventSuspendFailed = "SuspendFailed"

// Jobs are what is needed to evict the pods of a Job by suspending it.
type Jobs struct {
	Client     batchv1client.JobsGetter
	Namespaces corev1listers.NamespaceLister
	// EvictBy is how gangs are evicted that do not say, nor their namespace.
	EvictBy string
}

// WholeJob is a Job that will be suspended because all of its pods on nodes will be evicted.
type WholeJob struct {
	Name types.NamespacedName
	UID  types.UID
	Pods []*v1.Pod // on nodes
}

// evictBy returns how a gang is evicted as a whole.
func (j *Jobs) evictBy(f *gangstate.RunningGang) string {
	if f.EvictBy != "" {
		return f.EvictBy
	}
	if namespace, err := j.Namespaces.Get(f.Key.Namespace); err == nil {
		switch by := namespace.Annotations[v1alpha1.EvictByAnnotation]; by {
		case v1alpha1.EvictByDelete, v1alpha1.EvictBySuspend:
			return by
		}
	}
	return j.EvictBy
}

// WholeJobs returns the Jobs to suspend in order to evict these pods of gangs: the gang asks for it, and
// no other pod of the Job is on a node.
func (e *Evictor) WholeJobs(together []gangstate.RunningGang, victims []*v1.Pod) ([]WholeJob, error) {
	chosen := make(map[types.UID]bool, len(victims))
	for _, pod := range victims {
		chosen[pod.UID] = true
	}
	var jobs []WholeJob
	for i := range together {
		if e.Jobs.evictBy(&together[i]) != v1alpha1.EvictBySuspend {
			continue
		}
		byJob := map[types.UID]WholeJob{}
		for _, member := range together[i].Running {
			if owner := objectstate.ControllingJob(member.Pod); owner != nil {
				byJob[owner.UID] = WholeJob{Name: types.NamespacedName{Namespace: member.Pod.Namespace, Name: owner.Name},
					UID: owner.UID}
			}
		}
		for _, job := range byJob {
			pods, err := e.Pods.Pods(job.Name.Namespace).List(labels.Everything())
			if err != nil {
				return nil, fmt.Errorf("listing the pods of Job %s: %w", job.Name, err)
			}
			for _, pod := range pods {
				if owner := objectstate.ControllingJob(pod); owner != nil && owner.UID == job.UID && objectstate.StaysOnNode(pod) {
					job.Pods = append(job.Pods, pod)
				}
			}
			stays := slices.ContainsFunc(job.Pods, func(pod *v1.Pod) bool { return !chosen[pod.UID] })
			if len(job.Pods) > 0 && !stays {
				jobs = append(jobs, job)
			}
		}
	}
	return jobs, nil
}

// SuspendJobs suspends Jobs to make room for a preemptor. It returns their pods on nodes, which the Job controller
// deletes; without those of Jobs that cannot be suspended.
func (e *Evictor) SuspendJobs(ctx context.Context, jobs []WholeJob, preemptor string) *LeftToOwner {
	left := &LeftToOwner{pods: map[types.UID]bool{}}
	for _, job := range jobs {
		done, err := e.suspend(ctx, job, preemptor)
		if err != nil {
			on := &v1.ObjectReference{APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
				Namespace: job.Name.Namespace, Name: job.Name.Name, UID: job.UID}
			klog.FromContext(ctx).Error(err, "Failed to suspend a Job; its pods are deleted instead", "job", job.Name.String())
			status.Event{On: on, Type: v1.EventTypeWarning, Reason: EventSuspendFailed, Action: "Evicting",
				Note: fmt.Sprintf("%v; its pods are deleted instead, and the Job controller makes them again after a pause", err),
			}.Record(e.Recorder)
		}
		if !done {
			continue
		}
		for _, pod := range job.Pods {
			left.pods[pod.UID] = true
		}
	}
	left.since = e.Clock.Now()
	return left
}

// suspend suspends a Job for a preemptor. It returns false if the Job must not be suspended, or is gone.
func (e *Evictor) suspend(ctx context.Context, job WholeJob, preemptor string) (done bool, err error) {
	client, now := e.Jobs.Client.Jobs(job.Name.Namespace), e.Clock.Now()
	record := evictionrecord.New(now, preemptor)
	record.Until = now.Add(longestGrace(job.Pods) + stuckAfter)
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		done = false
		current, err := client.Get(ctx, job.Name.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && current.UID != job.UID:
			return nil
		case err != nil:
			return err
		case jobsuspension.IsSuspendedByEviction(current):
			done = true // another profile did it, or the answer to an earlier call was lost
			return nil
		}
		if why := jobsuspension.Refusal(current); why != "" {
			klog.FromContext(ctx).V(2).Info("Deleting the pods of a Job instead of suspending it", "job", klog.KObj(current),
				"why", why)
			return nil
		}
		patch, err := jobsuspension.Suspend(current, record)
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, current.Name, types.MergePatchType, patch,
			metav1.PatchOptions{FieldManager: jobsuspension.FieldManager})
		done = err == nil
		return err
	})
	if err != nil {
		return false, fmt.Errorf("suspending Job %s: %w", job.Name, err)
	}
	return done, nil
}

// inSuspendedJobs returns the pods of gangs that the Job controller is deleting: another process has suspended their
// Job.
func (e *Evictor) inSuspendedJobs(ctx context.Context, left []gangstate.RunningGang) map[types.UID]bool {
	var pods []*v1.Pod
	for _, f := range left {
		for _, member := range f.Running {
			pods = append(pods, member.Pod)
		}
	}
	jobs, err := e.WholeJobs(left, pods)
	inSuspended := map[types.UID]bool{}
	for _, job := range jobs {
		current, readErr := e.Jobs.Client.Jobs(job.Name.Namespace).Get(ctx, job.Name.Name, metav1.GetOptions{})
		if err = errors.Join(err, readErr); readErr != nil || !jobsuspension.IsSuspendedByEviction(current) {
			continue
		}
		for _, pod := range job.Pods {
			inSuspended[pod.UID] = true
		}
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to find out whether Jobs are suspended; their pods are deleted")
	}
	return inSuspended
}

// longestGrace returns the longest time that one of these pods has to end.
func longestGrace(pods []*v1.Pod) time.Duration {
	longest := time.Duration(0)
	for _, pod := range pods {
		seconds := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
		longest = max(longest, time.Duration(seconds)*time.Second)
	}
	return longest
}

// LeftToOwner are evicted pods that the Job controller is to delete, because their Job was suspended.
type LeftToOwner struct {
	pods map[types.UID]bool
	// since is when the first was left to it, the last was seen to be deleted, or the rest was last overdue.
	since time.Time
}

// ownerGrace is how long the Job controller may take between two deletions: it may be starting, or waiting for its
// lease. Pods that the scheduler deletes count as failures of the Job.
const ownerGrace = time.Minute

// Has reports whether a pod was left to the Job controller.
func (l *LeftToOwner) Has(pod types.UID) bool { return l.pods[pod] }

// Pods returns the pods that were left to it and were not seen to be deleted.
func (l *LeftToOwner) Pods() []types.UID { return slices.Collect(maps.Keys(l.pods)) }

// Overdue lists the pods that still run if the Job controller has deleted none of them for some time: it does not run,
// or the Job was resumed meanwhile.
func (e *Evictor) Overdue(l *LeftToOwner) []*v1.Pod {
	var running []*v1.Pod
	for uid := range l.pods {
		if pod, ok := e.Pod(uid); ok && objectstate.StaysOnNode(pod) {
			running = append(running, pod)
			continue
		}
		delete(l.pods, uid)
		l.since = e.Clock.Now()
	}
	if e.Clock.Since(l.since) < ownerGrace {
		return nil
	}
	l.since = e.Clock.Now()
	return running
}
