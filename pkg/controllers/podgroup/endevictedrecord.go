package podgroup

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstatus"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
)

// jobInterval is how often the Job of an evicted gang is looked at, which may finish without making pods again.
const jobInterval = 10 * time.Second

// endEvicted removes what a PodGroup says of an eviction once its gang has members again, or gets none: it has ended,
// or its Job has, or is gone.
func (r *reconciler) endEvicted(ctx context.Context, pg *coscheduling.PodGroup, f gangstatus.StatusFacts,
	phase schedulingv1alpha1.PodGroupPhase) (reconcile.Result, error) {
	value, recorded := pg.Annotations[v1alpha1.EvictedAnnotation]
	record := evictionrecord.Read(value)
	said := meta.FindStatusCondition(pg.Status.Conditions, v1alpha1.ConditionScheduled)
	says := said != nil && said.Reason == v1alpha1.ReasonEvicted
	if says && !recorded {
		record.At = said.LastTransitionTime.Time
	}
	if !says && !recorded {
		return reconcile.Result{}, nil
	}
	if !f.IsBack(record.At) && phase != schedulingv1alpha1.PodGroupFinished &&
		record.Counts(r.clock.Now(), config.MaxEvictedHold) {
		ended, failed, err := r.jobEnded(ctx, pg, record.Job)
		if err != nil || !ended {
			return reconcile.Result{RequeueAfter: jobInterval}, err
		}
		f.OwnerEnded = true
		if says && failed != "" {
			f.JobFailed = failed + "; " + gangstate.TextEvicted(f.Key, record)
		}
		if fields := gangstatus.Changes(pg.Status, gangstatus.Next(pg, f, metav1.NewTime(r.clock.Now()))); says &&
			len(fields) > 0 {
			return r.write(ctx, pg, fields)
		}
		if says && slices.ContainsFunc(f.Pods, func(pod *v1.Pod) bool { return !objectstate.HasEnded(pod) }) {
			return reconcile.Result{RequeueAfter: jobInterval}, nil // it is said when they have ended
		}
	}
	if !recorded {
		return reconcile.Result{}, nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:null}}}`, pg.ResourceVersion,
		v1alpha1.EvictedAnnotation)
	written := &coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: pg.Namespace, Name: pg.Name}}
	err := r.client.Patch(ctx, written, client.RawPatch(types.MergePatchType, patch),
		client.FieldOwner(objects.FieldOwner))
	return objects.WriteResult(err, settle, fmt.Sprintf("the eviction of PodGroup %s/%s", pg.Namespace, pg.Name))
}

// jobEnded reports whether the Job that made a gang has finished or is gone: the one that owns its PodGroup, or else
// the one of the name. What another controller made is that one's to end, and to make again. failed says that the Job
// has failed; empty if it has not.
func (r *reconciler) jobEnded(ctx context.Context, pg *coscheduling.PodGroup,
	name string) (ended bool, failed string, err error) {
	if job := objectstate.ControllingJob(pg); job != nil {
		name = job.Name
	} else if metav1.GetControllerOfNoCopy(pg) != nil || name == "" {
		return false, "", nil
	}
	job := &batchv1.Job{}
	err = r.jobs.Get(ctx, client.ObjectKey{Namespace: pg.Namespace, Name: name}, job)
	if apierrors.IsNotFound(err) {
		return true, "", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("reading Job %s/%s: %w", pg.Namespace, name, err)
	}
	if objectstate.JobIsMadeAgain(job) {
		return false, "", nil
	}
	return objectstate.JobIsOver(job), gangstate.TextJobFailed(job), nil
}
