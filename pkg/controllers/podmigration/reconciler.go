package podmigration

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/moves"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/podgroupreader"
	"github.com/lockstep-sh/lockstep/pkg/rules/defrag/migration"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

const (
	// poll is how often the pod of a running migration is read: there are too few for a watch.
	poll = time.Second
	// rest is how often a suspended PodMigration is looked at.
	rest = 10 * time.Second
	// longestGrace bounds the grace period of a pod that ends, in seconds: 68 years.
	longestGrace = math.MaxInt32
	// action is the action that the controller's events name.
	action = "Migrate"
	// eventMigrating is on a pod that is evicted to be moved.
	eventMigrating = "Migrating"
)

var ended = moves.Served(metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "lockstep", Subsystem: "migration", Name: "migrations_total", StabilityLevel: metrics.ALPHA,
	Help: "PodMigrations that have come to their end, by phase and by the reason of their condition Complete.",
}, []string{"phase", "reason"}))

// reconciler brings PodMigrations on.
type reconciler struct {
	client client.Client
	// live reads past the cache, by names that users have written.
	live     client.Reader
	recorder events.EventRecorder
	clock    clock.PassiveClock
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	m := &v1alpha1.PodMigration{}
	if err := r.live.Get(ctx, request.NamespacedName, m); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return moves.Result(r.bring(ctx, m))
}

// bring does one step, and returns after how long to look again.
func (r *reconciler) bring(ctx context.Context, m *v1alpha1.PodMigration) (time.Duration, error) {
	before := m.DeepCopy()
	if !migration.Ended(m.Status.Phase) && m.DeletionTimestamp == nil &&
		controllerutil.AddFinalizer(m, v1alpha1.ReleaseFinalizer) {
		return moves.Retry, moves.Patch(ctx, r.client, m, before)
	}
	var s observation
	var err error
	if m.DeletionTimestamp == nil && !migration.Ended(m.Status.Phase) { // otherwise it only has to release what it holds
		if s, err = r.see(ctx, m); err != nil {
			return 0, err
		}
	}
	now := r.clock.Now()
	step := migration.Next(m, s.Seen, now)
	if !equality.Semantic.DeepEqual(m.Status, step.Status) {
		if err := r.write(ctx, m, step.Status); !moves.Unimportant(m, err) {
			return time.Millisecond, err
		}
		return r.bring(ctx, m) // as if it had been written
	}
	if err := r.mirror(ctx, m); err != nil { // no decision depends on it
		klog.FromContext(ctx).Error(err, "Failed to say on a PodGroup how far its pods have been moved",
			"podMigration", klog.KObj(m))
	}
	if migration.Ended(m.Status.Phase) {
		return moves.Finish(ctx, r.client, r.live, m, v1alpha1.MigrationLabel,
			func(rsv *v1alpha1.Reservation) bool { return rsv.Labels[v1alpha1.MigrationLabel] == string(m.UID) })
	}
	if err := r.act(ctx, m, s, step.Action); err != nil {
		return 0, err
	}
	next := poll
	if m.Spec.Suspend {
		next = rest // watches report the rest
	}
	if !step.Again.IsZero() {
		next = min(next, objects.Until(step.Again, now))
	}
	return next, nil
}

// observation is what was read, as the pure package and as the API have it.
type observation struct {
	migration.Seen
	pod         *v1.Pod
	reservation *v1alpha1.Reservation
}

func (r *reconciler) see(ctx context.Context, m *v1alpha1.PodMigration) (s observation, err error) {
	pod, err := moves.Pod(ctx, r.live, client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.PodName})
	if err != nil {
		return s, err
	}
	if pod != nil {
		s.pod = pod
		s.Pod = &migration.Pod{
			UID: pod.UID, Node: pod.Spec.NodeName, Ending: pod.DeletionTimestamp != nil,
			Controlled: metav1.GetControllerOf(pod) != nil,
			Ended:      objectstate.HasEnded(pod), Successors: migration.Successors(pod),
		}
		if grace := pod.DeletionGracePeriodSeconds; grace != nil {
			s.Pod.Grace = time.Duration(min(*grace, longestGrace)) * time.Second
		}
	}
	rsv := &v1alpha1.Reservation{}
	switch err := r.live.Get(ctx, client.ObjectKey{Name: migration.ReservationName(m)}, rsv); {
	case err == nil:
		s.reservation = rsv
		s.Reservation = &migration.Reservation{
			Ours: rsv.Labels[v1alpha1.MigrationLabel] == string(m.UID), Open: migration.IsOpen(rsv, m),
			Observed: migration.IsObserved(rsv), Phase: rsv.Status.Phase, Node: rsv.Status.NodeName, Why: migration.WhyNot(rsv),
			Users: rsv.Status.CurrentOwners,
		}
		if rsv.DeletionTimestamp != nil {
			s.Reservation.Phase = v1alpha1.ReservationFailed
		}
		if s.Reservation.Phase == v1alpha1.ReservationAvailable && s.pod != nil && s.pod.UID == m.Spec.PodUID &&
			s.pod.DeletionTimestamp == nil {
			if _, s.Unusable, err = moves.Node(ctx, r.live, m.Spec.TargetNode); err != nil {
				return s, err
			}
		}
	case !apierrors.IsNotFound(err):
		return s, fmt.Errorf("reading the Reservation: %w", err)
	}
	if m.Status.Successors != nil && !m.Spec.Suspend && s.Reservation != nil && !s.Reservation.Open {
		if s.Alike, err = r.alike(ctx, m); err != nil {
			return s, err
		}
	}
	if m.Status.Phase == v1alpha1.MigrationRunning && (s.pod == nil || s.pod.UID != m.Spec.PodUID) {
		if s.Barren, err = r.noProgress(ctx, m); err == nil {
			s.Successor, err = r.successor(ctx, m, s.pod)
		}
	}
	return s, err
}

// successor returns the pod that has come in place of one that is gone, and has got a node; nil for none. Of pods
// outside gangs it knows the one that has the name: the cache does not keep the owners of the others.
func (r *reconciler) successor(ctx context.Context, m *v1alpha1.PodMigration,
	named *v1.Pod) (*migration.Successor, error) {
	var pods v1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	if named != nil {
		pods.Items = append(slices.DeleteFunc(pods.Items, func(p v1.Pod) bool { return p.Name == named.Name }), *named)
	}
	return migration.SuccessorOf(m, pods.Items), nil
}

// noProgress reports whether the controller of the pod is gone for good, or is to have no pods; false for a kind that
// may not be read.
func (r *reconciler) noProgress(ctx context.Context, m *v1alpha1.PodMigration) (bool, error) {
	if m.Status.Successors == nil || m.Status.Successors.Controller == nil || m.Status.Successors.Controller.UID == "" {
		return false, nil
	}
	by := m.Status.Successors.Controller
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.FromAPIVersionAndKind(by.APIVersion, by.Kind))
	err := r.live.Get(ctx, client.ObjectKey{Namespace: by.Namespace, Name: by.Name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading %s %s/%s: %w", by.Kind, by.Namespace, by.Name, err)
	}
	replicas, stated, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
	return object.GetUID() != by.UID || object.GetDeletionTimestamp() != nil || stated && replicas == 0, nil
}

// alike returns the name of a Reservation of another PodMigration that is open to the same successors. Only one
// PodMigration is reconciled at a time, so none is opened meanwhile.
func (r *reconciler) alike(ctx context.Context, m *v1alpha1.PodMigration) (string, error) {
	var list v1alpha1.ReservationList
	if err := r.live.List(ctx, &list, client.HasLabels{v1alpha1.MigrationLabel}); err != nil {
		return "", fmt.Errorf("listing Reservations of migrations: %w", err)
	}
	same := migration.OwnerFor(m, nil)
	for i := range list.Items {
		rsv := &list.Items[i]
		if rsv.DeletionTimestamp != nil || reservationstate.Ended(rsv.Status.Phase) ||
			rsv.Labels[v1alpha1.MigrationLabel] == string(m.UID) {
			continue
		}
		if slices.ContainsFunc(rsv.Spec.Owners,
			func(o v1alpha1.ReservationOwner) bool { return equality.Semantic.DeepEqual(o, same) }) {
			return rsv.Name, nil
		}
	}
	return "", nil
}

// act does the action of a step.
func (r *reconciler) act(ctx context.Context, m *v1alpha1.PodMigration, s observation, action migration.Action) error {
	switch action {
	case migration.Reserve:
		queue, err := podgroupreader.Queue(ctx, r.live, r.client.RESTMapper(), s.pod)
		if err != nil {
			return err
		}
		err = r.client.Create(ctx, migration.ReservationFor(m, s.pod, queue))
		switch {
		case apierrors.IsAlreadyExists(err):
			return nil // it is looked at next
		case apierrors.IsInvalid(err):
			return r.write(ctx, m,
				migration.Refused(m, v1alpha1.MigrationReasonNoRoom, "the pod cannot be reserved for: "+err.Error(), r.clock.Now()))
		}
		return err
	case migration.Open:
		return r.setOwner(ctx, s, migration.OwnerFor(m, s.pod))
	case migration.Close:
		return r.setOwner(ctx, s, migration.OwnerByUID(s.pod))
	case migration.Evict:
		return r.evict(ctx, m, s.pod)
	default:
		return nil
	}
}

// setOwner sets who may use the Reservation, provided that the Reservation has not changed since it was read.
func (r *reconciler) setOwner(ctx context.Context, s observation, owner v1alpha1.ReservationOwner) error {
	changed := s.reservation.DeepCopy()
	changed.Spec.Owners = []v1alpha1.ReservationOwner{owner}
	return moves.Patch(ctx, r.client, changed, s.reservation)
}

// evict requests the eviction of exactly this pod, if its target is held: both were read just now.
func (r *reconciler) evict(ctx context.Context, m *v1alpha1.PodMigration, pod *v1.Pod) error {
	eviction := &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &m.Spec.PodUID}}}
	err := r.client.SubResource("eviction").Create(ctx, pod, eviction)
	switch {
	case err == nil:
		why := ""
		if text := m.Annotations[v1alpha1.WhyAnnotation]; text != "" {
			why = ": it " + text
		}
		r.recorder.Eventf(pod, m, v1.EventTypeNormal, eventMigrating, action,
			"moved from node %s to %s, which Reservation %s holds for its successor%s",
			m.Spec.SourceNode, m.Spec.TargetNode, m.Status.Reservation, why)
		return nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // it is gone, or another pod has its name: seen next
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		barred := migration.Barred(m, budgetText(err), r.clock.Now())
		if equality.Semantic.DeepEqual(m.Status, barred) {
			return nil
		}
		return r.write(ctx, m, barred)
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsMethodNotSupported(err):
		return r.write(ctx, m, migration.Refused(m, v1alpha1.MigrationReasonRefused, err.Error(), r.clock.Now()))
	}
	return fmt.Errorf("evicting the pod: %w", err)
}

// budgetText returns why a PodDisruptionBudget does not allow an eviction: the cause names the budget, the message does
// not.
func budgetText(err error) string {
	cause, _ := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	return strings.TrimSpace(err.Error() + " " + cause.Message)
}

// write writes a status, provided that the PodMigration has not changed since it was read. It reports the end of a
// PodMigration in an event and a metric.
func (r *reconciler) write(ctx context.Context, m *v1alpha1.PodMigration, want v1alpha1.PodMigrationStatus) error {
	ends := migration.Ended(want.Phase) && !migration.Ended(m.Status.Phase)
	m.Status = want
	if err := r.client.Status().Update(ctx, m); err != nil || !ends {
		return client.IgnoreNotFound(err)
	}
	kind := v1.EventTypeNormal
	if m.Status.Phase == v1alpha1.MigrationFailed {
		kind = v1.EventTypeWarning
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.MigrationComplete)
	r.recorder.Eventf(m, nil, kind, c.Reason, action, "%s", c.Message)
	ended.WithLabelValues(string(m.Status.Phase), c.Reason).Inc()
	return nil
}
