package defragplan

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/moves"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
)

// poll is how often the goal is looked at while a plan is carried out: no watch is kept for it.
const poll = 2 * time.Second

var ended = moves.Served(metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "lockstep", Subsystem: "defragmentation", Name: "plans_total", StabilityLevel: metrics.ALPHA,
	Help: "DefragmentationPlans that have come to their end, by phase and by the reason of their condition Complete.",
}, []string{"phase", "reason"}))

// reconciler brings plans on.
type reconciler struct {
	client client.Client
	// live reads past the cache, by names that users have written.
	live     client.Reader
	recorder events.EventRecorder
	clock    clock.PassiveClock
	// keep is how long what has ended is kept; 0 is for ever.
	keep time.Duration
	// suspicions are goals that would not start by what their schedulers say, by plan. One plan is carried out at a time.
	suspicions map[types.UID]goalDoubt
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p := &v1alpha1.DefragmentationPlan{}
	if err := r.live.Get(ctx, request.NamespacedName, p); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return moves.Result(r.bring(ctx, p))
}

// bring does one step, and returns when to look again.
func (r *reconciler) bring(ctx context.Context, p *v1alpha1.DefragmentationPlan) (time.Duration, error) {
	ended := migration.PlanEnded(p.Status.Phase)
	if ended {
		delete(r.suspicions, p.UID)
	}
	before := p.DeepCopy()
	if !ended && p.DeletionTimestamp == nil && controllerutil.AddFinalizer(p, v1alpha1.ReleaseFinalizer) {
		return moves.Retry, moves.Patch(ctx, r.client, p, before)
	}
	if ended && !controllerutil.ContainsFinalizer(p, v1alpha1.ReleaseFinalizer) {
		return objects.Collect(ctx, r.client, p, p.Status.EndTime, r.keep, r.clock.Now())
	}
	s, err := r.see(ctx, p)
	if err != nil {
		return 0, err
	}
	now := r.clock.Now()
	step, err := r.next(ctx, p, s, now)
	if err != nil {
		return 0, err
	}
	if !equality.Semantic.DeepEqual(p.Status, step.Status) {
		if err := r.write(ctx, p, step.Status); !moves.Unimportant(p, err) {
			return time.Millisecond, err
		}
		return r.bring(ctx, p) // as if it had been written
	}
	acted, err := r.act(ctx, p, s, step)
	switch {
	case err != nil:
		return 0, err
	case acted:
		return moves.Retry, nil // and see what came of it
	case step.Release:
		return moves.Finish(ctx, r.client, r.live, p, v1alpha1.PlanLabel,
			func(rsv *v1alpha1.Reservation) bool { return holds(p, rsv) })
	case p.Status.Phase == v1alpha1.DefragmentationPending:
		return 0, nil
	}
	again := objects.Until(step.Again, now)
	switch {
	case step.Again.IsZero():
		return poll, nil
	case p.Status.Phase == v1alpha1.DefragmentationPlanned:
		return again, nil // a watch tells of its approval
	}
	return min(poll, again), nil
}

// next is what follows for a plan. What it needs to know for that is looked up, and nothing else.
func (r *reconciler) next(ctx context.Context, p *v1alpha1.DefragmentationPlan, s migration.PlanSeen,
	now time.Time) (step migration.PlanStep, err error) {
	for {
		step = migration.NextPlan(p, s, now)
		switch {
		case step.Check:
			err = r.check(ctx, p, &s, step.Begun, now)
		case step.Count:
			s.Fits, err = r.count(ctx, p)
		default:
			return step, nil
		}
		if err != nil {
			return step, err
		}
	}
}

// doubtFor is how long a scheduler has to say that a goal would not start before that counts: what it says is up to
// several seconds old, and a queue is fuller while a pod that moves ends beside its successor. A gap of doubtGap
// between two checks begins that time anew.
const (
	doubtFor = 15 * time.Second
	doubtGap = 10 * time.Second
)

// goalDoubt is since when a goal is said not to start, since when nothing is said of it, and when it was checked last.
type goalDoubt struct{ since, unsaid, last time.Time }

// mayPass reports whether the reason why (empty for none) is too recent to act on. said: the scheduler gave it;
// otherwise it has said nothing yet.
func (r *reconciler) mayPass(p *v1alpha1.DefragmentationPlan, why string, said bool, now time.Time) bool {
	if why == "" {
		delete(r.suspicions, p.UID)
		return false
	}
	d := r.suspicions[p.UID]
	if now.Sub(d.last) > doubtGap {
		d = goalDoubt{}
	}
	d.last = now
	since := &d.unsaid
	if said {
		since, d.unsaid = &d.since, time.Time{}
	}
	if since.IsZero() {
		*since = now
	}
	r.suspicions[p.UID] = d
	return now.Sub(*since) < doubtFor
}

// act does what a status says. It reports whether there was anything to do.
func (r *reconciler) act(ctx context.Context, p *v1alpha1.DefragmentationPlan, s migration.PlanSeen,
	step migration.PlanStep) (acted bool, err error) {
	for _, i := range step.Suspend {
		acted = true
		if err := r.setSuspend(ctx, s.Moves[i].PodMigration, true); err != nil {
			return true, err
		}
	}
	for _, i := range step.Cancel {
		if m := s.Moves[i].PodMigration; m.DeletionTimestamp == nil {
			acted = true
			if err := r.client.Delete(ctx, m,
				client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion}); client.IgnoreNotFound(err) != nil {
				return true, fmt.Errorf("cancelling move %d: %w", i, err)
			}
		}
	}
	if step.Hold && len(s.Holds) < s.Wants {
		made, refusal, err := r.hold(ctx, p)
		if err != nil {
			return true, err
		}
		if unheld := migration.Unheld(p, refusal, r.clock.Now()); refusal != "" &&
			!equality.Semantic.DeepEqual(p.Status, unheld) {
			return true, r.write(ctx, p, unheld)
		}
		acted = acted || made
	}
	for _, i := range step.Make {
		acted = true
		switch refusal, err := r.create(ctx, p, migrationFor(p, i)); {
		case err != nil:
			return true, fmt.Errorf("making the PodMigration of move %d: %w", i, err)
		case refusal != "": // it is not tried again
			return true, r.write(ctx, p, migration.Unmade(p, i, refusal, r.clock.Now()))
		}
	}
	for _, i := range step.Resume {
		acted = true
		if err := r.setSuspend(ctx, s.Moves[i].PodMigration, false); err != nil {
			return true, err
		}
	}
	return acted, nil
}

// setSuspend sets whether a move may not begin.
func (r *reconciler) setSuspend(ctx context.Context, m *v1alpha1.PodMigration, suspend bool) error {
	before := m.DeepCopy()
	m.Spec.Suspend = suspend
	if err := moves.Patch(ctx, r.client, m, before); err != nil {
		return fmt.Errorf("setting suspend of PodMigration %s/%s: %w", m.Namespace, m.Name, err)
	}
	return nil
}

// create creates an object of a plan, unless it is there. It returns why the API server refuses it; empty if it does
// not.
func (r *reconciler) create(ctx context.Context, p *v1alpha1.DefragmentationPlan,
	object client.Object) (refusal string, err error) {
	err = r.client.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		err = r.live.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil && !metav1.IsControlledBy(object, p) {
			return fmt.Sprintf("there is another one of the name %s", object.GetName()), nil
		}
		err = client.IgnoreNotFound(err) // it was deleted meanwhile, which the next look finds
	}
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsInvalid(err) {
		return err.Error(), nil // its namespace is gone, a quota is used up, or a policy is against it
	}
	return "", err
}

// write writes a status, provided that the plan has not changed since it was read.
func (r *reconciler) write(ctx context.Context, p *v1alpha1.DefragmentationPlan,
	want v1alpha1.DefragmentationPlanStatus) error {
	was := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.DefragmentationComplete).DeepCopy()
	ends := migration.PlanEnded(want.Phase) && !migration.PlanEnded(p.Status.Phase)
	p.Status = want
	if err := r.client.Status().Update(ctx, p); err != nil {
		return client.IgnoreNotFound(err)
	}
	now := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.DefragmentationComplete)
	if now == nil || was != nil && was.Reason == now.Reason && !ends { // it may have said before why it stops
		return nil
	}
	kind := v1.EventTypeNormal
	if p.Status.Phase == v1alpha1.DefragmentationFailed {
		kind = v1.EventTypeWarning
	}
	r.recorder.Eventf(p, nil, kind, now.Reason, action, "%s", now.Message)
	if ends {
		ended.WithLabelValues(string(p.Status.Phase), now.Reason).Inc()
	}
	return nil
}

// action is what events say that the controller was doing.
const action = "Defragment"
