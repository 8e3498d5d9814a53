// Package jobsuspension has the rules for evicting the pods of a Job by suspending it: which Jobs may be suspended,
// what is written on them, and when they are resumed.
//
// Its state is on the Job alone: [v1alpha1.EvictedAnnotation], and who wrote spec.suspend. So it survives a restart of
// the scheduler, which suspends, and of lockstep-controller, which resumes.
package jobsuspension

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
)

// FieldManager is the field manager by which Jobs are suspended.
const FieldManager = "lockstep-eviction"

// kueueQueueLabel is on Jobs that Kueue suspends and resumes.
const kueueQueueLabel = "kueue.x-k8s.io/queue-name"

// Refusal returns why a Job must not be suspended by an eviction; empty if it may.
func Refusal(job *batchv1.Job) string {
	switch {
	case job.DeletionTimestamp != nil:
		return "it is being deleted"
	case IsSuspended(job):
		return "it is suspended already"
	case objectstate.JobIsOver(job):
		return "it has finished"
	default:
		return managedByOther(job)
	}
}

// managedByOther returns who else may suspend and resume a Job; empty for nobody but its users.
func managedByOther(job *batchv1.Job) string {
	if queue, ok := job.Labels[kueueQueueLabel]; ok {
		return fmt.Sprintf("it is in queue %q of Kueue", queue)
	}
	if by := job.Spec.ManagedBy; by != nil && *by != batchv1.JobControllerName {
		return "it is managed by " + *by
	}
	if owner := metav1.GetControllerOfNoCopy(job); owner != nil && owner.Kind != "CronJob" {
		return fmt.Sprintf("it belongs to %s %q", owner.Kind, owner.Name)
	}
	return ""
}

// IsSuspended reports whether a Job is suspended, by whomever.
func IsSuspended(job *batchv1.Job) bool { return ptr.Deref(job.Spec.Suspend, false) }

// IsMarked reports whether a Job still has the mark of an eviction that suspended it. Others may have resumed it since.
func IsMarked(job metav1.Object) bool {
	_, marked := job.GetAnnotations()[v1alpha1.EvictedAnnotation]
	return marked
}

// IsSuspendedByEviction reports whether a Job is suspended by an eviction.
func IsSuspendedByEviction(job *batchv1.Job) bool { return IsMarked(job) && IsSuspended(job) }

// Suspend returns the merge patch that suspends a Job as it was read.
func Suspend(job *batchv1.Job, record evictionrecord.Record) ([]byte, error) {
	return patch(job, record.Annotation(), new(true))
}

// patch returns a merge patch of a Job as it was read: the annotation, nil to remove it, and spec.suspend, nil to leave
// it.
func patch(job *batchv1.Job, evicted any, suspend *bool) ([]byte, error) {
	change := map[string]any{"metadata": map[string]any{"uid": job.UID, "resourceVersion": job.ResourceVersion,
		"annotations": map[string]any{v1alpha1.EvictedAnnotation: evicted}}}
	if suspend != nil {
		change["spec"] = map[string]any{"suspend": *suspend}
	}
	data, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encoding a patch of Job %s: %w", job.Name, err)
	}
	return data, nil
}

// Step is what to do with a Job now.
type Step int

// Steps.
const (
	// None: no eviction has suspended it.
	None Step = iota
	// Wait: its pods have not ended. A time, if any, says when to look again at the latest.
	Wait
	// Resume: its pods have ended.
	Resume
	// Leave: somebody else decides whether it is suspended.
	Leave
)

// Next returns what to do with a Job; with Wait, until when, zero for until it changes; with Leave, why.
func Next(job *batchv1.Job, now time.Time) (step Step, until time.Time, why string) {
	if !IsMarked(job) || job.DeletionTimestamp != nil {
		return None, time.Time{}, ""
	}
	if !IsSuspended(job) {
		return Leave, time.Time{}, "it was resumed"
	}
	if why := cmp.Or(managedByOther(job), suspendedByOther(job)); why != "" {
		return Leave, time.Time{}, why
	}
	if objectstate.JobCondition(job, batchv1.JobSuspended) == nil || job.Status.Active > 0 {
		return Wait, time.Time{}, "" // the Job controller has not seen it, or not deleted all pods
	}
	if job.Status.Terminating != nil && *job.Status.Terminating > 0 {
		if e := evictionrecord.Read(job.Annotations[v1alpha1.EvictedAnnotation]); now.Before(e.Until) {
			return Wait, e.Until, ""
		}
	}
	return Resume, time.Time{}, ""
}

// Patch returns the merge patch for the steps Resume and Leave of a Job as it was read.
func (s Step) Patch(job *batchv1.Job) ([]byte, error) {
	if s == Resume {
		return patch(job, nil, new(false))
	}
	return patch(job, nil, nil)
}

// suspendedByOther returns who else wrote that a Job is suspended, as far as its field managers are known; empty for
// nobody.
func suspendedByOther(job *batchv1.Job) string {
	for _, writer := range objectstate.Writers(job.ManagedFields, fieldpath.MakePathOrDie("spec", "suspend")) {
		if writer != FieldManager {
			return fmt.Sprintf("%q has suspended it", writer)
		}
	}
	return ""
}
