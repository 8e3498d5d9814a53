package reservationlifecycle

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

const (
	// settle is how long events gather before a Reservation is looked at.
	settle = 200 * time.Millisecond
	// catchUp is how long a cache that is behind is given.
	catchUp = time.Second
)

// reconciler brings the status of Reservations up to date.
type reconciler struct {
	client client.Client
	// live reads past the cache, which may not have a new node yet.
	live     client.Reader
	recorder events.EventRecorder
	clock    clock.PassiveClock
	// keep is how long what has ended is kept; 0 is for ever.
	keep time.Duration
	// cluster is the watches of pods and nodes.
	cluster crds.OnDemand
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	rsv := &v1alpha1.Reservation{} // out of the cache, and not to be changed
	if found, err := objects.Read(ctx, r.client, request.NamespacedName, rsv); err != nil || !found {
		return reconcile.Result{}, err
	}
	if rsv.Status.EndTime != nil && reservationstate.Ended(rsv.Status.Phase) {
		return r.collect(ctx, rsv)
	}
	seen, behind, err := r.see(ctx, rsv)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.clock.Now()
	want, again := reservationstate.Next(rsv, seen, now)
	if err := r.write(ctx, rsv, want); err != nil {
		return objects.WriteResult(err, settle, "the status of Reservation "+rsv.Name)
	}
	switch {
	case behind:
		return reconcile.Result{RequeueAfter: catchUp}, nil
	case again.IsZero():
		return reconcile.Result{}, nil
	default:
		return reconcile.Result{RequeueAfter: objects.Until(again, now)}, nil
	}
}

// see gathers what the status of a Reservation follows from. behind: the cache does not know all of its
// nodes yet, and so would not show if they went.
func (r *reconciler) see(ctx context.Context,
	rsv *v1alpha1.Reservation) (seen reservationstate.Observed, behind bool, err error) {
	if err := r.cluster.Ensure(); err != nil {
		return seen, false, err
	}
	var pods v1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingFields{podIndex: string(rsv.UID)},
		client.UnsafeDisableDeepCopy); err != nil {
		return seen, false, fmt.Errorf("listing the pods that use Reservation %s: %w", rsv.Name, err)
	}
	for i := range pods.Items {
		if c, ok := consumer(&pods.Items[i]); ok {
			seen.Consumers = append(seen.Consumers, c)
		}
	}
	seen.Nodes = map[string]reservationstate.Node{}
	for _, p := range rsv.Status.Placements {
		if _, known := seen.Nodes[p.NodeName]; known {
			continue
		}
		state, known, err := r.node(ctx, p.NodeName)
		if err != nil {
			return seen, false, fmt.Errorf("looking at node %s of Reservation %s: %w", p.NodeName, rsv.Name, err)
		}
		seen.Nodes[p.NodeName] = state
		behind = behind || !known
	}
	return seen, behind, nil
}

// consumer returns a pod as a consumer of the Reservation that it uses; false where it uses none.
func consumer(pod *v1.Pod) (reservationstate.Consumer, bool) {
	use, ok := reservationstate.AllocationOf(pod)
	if !ok {
		return reservationstate.Consumer{}, false
	}
	requests := resource.OfPod(pod)
	requests[v1.ResourcePods] = 1
	return reservationstate.Consumer{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Created: pod.CreationTimestamp.Time,
		Index: use.Index, Node: pod.Spec.NodeName, Requests: requests, Ended: objectstate.HasEnded(pod),
	}, true
}

// node returns how a node is, and whether the cache knows that. Whether it is gone is read from the API
// server itself: a Reservation may be on a node that the cache does not have yet.
func (r *reconciler) node(ctx context.Context, name string) (state reservationstate.Node, known bool, err error) {
	key := client.ObjectKey{Name: name}
	var node v1.Node
	err = r.client.Get(ctx, key, &node, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil && node.Spec.Unschedulable:
		return reservationstate.NodeCordoned, true, nil
	case err == nil && !objectstate.IsReady(&node):
		return reservationstate.NodeNotReady, true, nil
	case err == nil || !apierrors.IsNotFound(err):
		return reservationstate.NodeThere, true, err
	}
	there := &metav1.PartialObjectMetadata{}
	there.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Node"))
	if err := r.live.Get(ctx, key, there); apierrors.IsNotFound(err) {
		return reservationstate.NodeGone, true, nil
	} else if err != nil {
		return reservationstate.NodeThere, true, err
	}
	return reservationstate.NodeThere, false, nil
}

// write patches a status that is not as it should be.
func (r *reconciler) write(ctx context.Context, rsv *v1alpha1.Reservation, want v1alpha1.ReservationStatus) error {
	if equality.Semantic.DeepEqual(rsv.Status, want) {
		return nil
	}
	after := rsv.DeepCopy()
	after.Status = *want.DeepCopy()
	if err := objects.PatchStatus(ctx, r.client, rsv, after); err != nil {
		return err
	}
	r.tell(rsv, want)
	return nil
}

// collect deletes a Reservation that ended long enough ago.
func (r *reconciler) collect(ctx context.Context, rsv *v1alpha1.Reservation) (reconcile.Result, error) {
	again, err := objects.Collect(ctx, r.client, rsv, rsv.Status.EndTime, r.keep, r.clock.Now())
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: settle}, nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// tell records what has become of a Reservation: in an event, and in metrics.
func (r *reconciler) tell(rsv *v1alpha1.Reservation, is v1alpha1.ReservationStatus) {
	was := meta.FindStatusCondition(rsv.Status.Conditions, v1alpha1.ReservationReady)
	now := meta.FindStatusCondition(is.Conditions, v1alpha1.ReservationReady)
	if now == nil || was != nil && was.Reason == now.Reason &&
		(now.Reason != v1alpha1.ReservationReasonNodeLost || was.Message == now.Message) {
		return
	}
	kind := v1.EventTypeNormal
	switch now.Reason {
	case v1alpha1.ReservationReasonPending:
		return // the scheduler reports what it waits for
	case v1alpha1.ReservationReasonNodeLost:
		kind = v1.EventTypeWarning
	case v1alpha1.ReservationReasonExpired:
		expired.Inc()
		if len(is.Placements) == 0 {
			kind = v1.EventTypeWarning
		}
	}
	r.recorder.Eventf(rsv, nil, kind, now.Reason, action, "%s", now.Message)
}

// action is the action of events: what the controller was doing.
const action = "KeepStatus"
