package jobresume

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/jobsuspension"
)

const (
	// name is the name of the controller in logs and metrics.
	name = "jobresume"

	// EventResumed: the pods have ended, and the Job makes new ones. EventLeftSuspended: it stays as somebody else
	// wants it. Both are on the Job.
	EventResumed       = "ResumedAfterEviction"
	EventLeftSuspended = "LeftSuspended"

	actionResuming = "Resuming"
)

// Setup adds the controller to a manager, whose cache may keep no more than package cachetransform says.
func Setup(mgr manager.Manager) error {
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder(objects.FieldOwner),
		clock: clock.RealClock{}}
	evicted := predicate.NewPredicateFuncs(func(job client.Object) bool { return jobsuspension.IsMarked(job) })
	if err := builder.ControllerManagedBy(mgr).Named(name).For(&batchv1.Job{}, builder.WithPredicates(evicted)).
		Complete(r); err != nil {
		return fmt.Errorf("adding the %s controller: %w", name, err)
	}
	return nil
}

type reconciler struct {
	client client.Client
	// live reads from the API server: the cache has only a part of a Job.
	live     client.Reader
	recorder events.EventRecorder
	clock    clock.PassiveClock
}

// Reconcile resumes a Job, or leaves it to others, if it is time.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	now := r.clock.Now()
	for _, from := range []client.Reader{r.client, r.live} {
		var job batchv1.Job
		if err := from.Get(ctx, request.NamespacedName, &job); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		step, until, why := jobsuspension.Next(&job, now)
		switch {
		case step == jobsuspension.None:
			return reconcile.Result{}, nil
		case step == jobsuspension.Wait && until.IsZero():
			return reconcile.Result{}, nil // until it changes
		case step == jobsuspension.Wait:
			return reconcile.Result{RequeueAfter: objects.Until(until, now)}, nil
		case from == r.live:
			return reconcile.Result{}, r.take(ctx, &job, step, why)
		}
	}
	return reconcile.Result{}, nil
}

// take takes the step Resume or Leave.
func (r *reconciler) take(ctx context.Context, job *batchv1.Job, step jobsuspension.Step, why string) error {
	patch, err := step.Patch(job)
	if err != nil {
		return err
	}
	err = r.client.Patch(ctx, job, client.RawPatch(client.Merge.Type(), patch), client.FieldOwner(objects.FieldOwner))
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // it has changed, and comes again
	case err != nil:
		return fmt.Errorf("resuming Job %s after an eviction: %w", klog.KObj(job), err)
	}
	switch {
	case step == jobsuspension.Resume:
		r.recorder.Eventf(job, nil, v1.EventTypeNormal, EventResumed, actionResuming, "its evicted pods have ended")
	case jobsuspension.IsSuspended(job):
		r.recorder.Eventf(job, nil, v1.EventTypeNormal, EventLeftSuspended, actionResuming,
			"not resumed after its eviction: %s", why)
	}
	return nil
}
