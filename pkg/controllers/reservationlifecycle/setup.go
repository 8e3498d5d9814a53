package reservationlifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

const (
	// name is the name of the controller in logs and metrics.
	name = "reservation"
	// podIndex is the name of the index from a Reservation's UID to the pods that use it, nodeIndex that
	// from a node to the Reservations that have something on it.
	podIndex, nodeIndex = "reservation", "node"
)

// Options of the controller.
type Options struct {
	// Workers is the number of Reservations that are worked on at a time. Default: 1.
	Workers int
	// KeepEnded is how long Reservations that have ended are kept. 0 keeps them.
	KeepEnded time.Duration
	// MarkNodes is whether nodes on which something is held are marked against scale-down. If it is false,
	// marks from before are removed.
	MarkNodes bool
}

// Setup adds the controller to a manager, whose cache may use the transforms of this package. Where the
// API server does not serve Reservations, the controller waits until it does; pods and nodes are watched
// from when there is a Reservation.
func Setup(mgr manager.Manager, o Options) error {
	if o.KeepEnded < 0 {
		return fmt.Errorf("checking how long Reservations that have ended are kept: %s is negative", o.KeepEnded)
	}
	if err := v1alpha1.AddToScheme(mgr.GetScheme()); err != nil {
		return fmt.Errorf("adding Reservations to the scheme: %w", err)
	}
	wait := manager.RunnableFunc(func(ctx context.Context) error {
		if !crds.Await(ctx, mgr.GetRESTMapper(), v1alpha1.SchemeGroupVersion.WithKind("Reservation")) {
			return nil
		}
		return start(ctx, mgr, o)
	})
	if err := mgr.Add(wait); err != nil {
		return fmt.Errorf("adding the %s controller: %w", name, err)
	}
	return nil
}

func start(ctx context.Context, mgr manager.Manager, o Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Reservation{}, nodeIndex, nodesOf); err != nil {
		return fmt.Errorf("indexing Reservations by node: %w", err)
	}
	registerMetrics(mgr.GetClient(), clock.RealClock{})
	r := &reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder(FieldOwner),
		clock: clock.RealClock{}, keep: o.KeepEnded,
	}
	err := r.cluster.Prepare(func() (func() error, error) {
		c, err := builder.ControllerManagedBy(mgr).Named(name).
			Watches(&v1alpha1.Reservation{}, reservationEvents()).
			WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers}).
			Build(r)
		if err != nil {
			return nil, fmt.Errorf("starting the %s controller: %w", name, err)
		}
		return func() error { return watchCluster(ctx, mgr, c) }, nil
	})
	if err != nil {
		return err
	}
	if o.MarkNodes {
		return startMarks(mgr)
	}
	endMarks(ctx, mgr.GetAPIReader(), mgr.GetClient())
	return nil
}

// watchCluster adds the watches of the pods that use Reservations, and of the nodes that they are on. It
// may be called again where it failed: then something is watched twice, which costs and does no harm.
func watchCluster(ctx context.Context, mgr manager.Manager, c controller.Controller) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1.Pod{}, podIndex, uidOf); err != nil {
		return fmt.Errorf("indexing pods by Reservation: %w", err)
	}
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &v1.Pod{}, podEvents())); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &v1.Node{}, nodeEvents(mgr.GetClient()))); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	return nil
}

// uidOf returns the UID of the Reservation that a pod uses, as a list.
func uidOf(object client.Object) []string {
	if pod, ok := object.(*v1.Pod); ok {
		if use, ok := reservationstate.AllocationOf(pod); ok {
			return []string{string(use.UID)}
		}
	}
	return nil
}

// nodesOf lists the nodes on which a Reservation holds something.
func nodesOf(object client.Object) []string {
	rsv, ok := object.(*v1alpha1.Reservation)
	if !ok || reservationstate.Ended(rsv.Status.Phase) || rsv.DeletionTimestamp != nil {
		return nil
	}
	var nodes []string
	for _, p := range rsv.Status.Placements {
		if !p.Spent {
			nodes = append(nodes, p.NodeName)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// soon queues a Reservation, or a node; until it is looked at, further events cost nothing.
func soon(q queue, name string) {
	q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}, settle)
}

func reservationEvents() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { soon(q, e.Object.GetName()) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { soon(q, e.ObjectNew.GetName()) },
	}
}

func podEvents() handler.EventHandler {
	user := func(object client.Object, q queue) {
		if pod, ok := object.(*v1.Pod); ok {
			if use, ok := reservationstate.AllocationOf(pod); ok {
				soon(q, use.Name)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { user(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if podDiffers(e.ObjectOld, e.ObjectNew) {
				user(e.ObjectOld, q)
				user(e.ObjectNew, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { user(e.Object, q) },
	}
}

// podDiffers reports whether a pod uses something else than it did, or more or less of it.
func podDiffers(was, is client.Object) bool {
	a, aOK := was.(*v1.Pod)
	b, bOK := is.(*v1.Pod)
	if !aOK || !bOK {
		return true
	}
	const key = v1alpha1.ReservationAllocatedAnnotation
	if a.Annotations[key] == "" && b.Annotations[key] == "" {
		return false
	}
	return a.UID != b.UID || a.Annotations[key] != b.Annotations[key] || a.Spec.NodeName != b.Spec.NodeName ||
		ended(a) != ended(b) || !equality.Semantic.DeepEqual(resource.Requests(a), resource.Requests(b))
}

// nodeEvents queues the Reservations on a node when it comes, goes, or takes pods no more or again.
func nodeEvents(reader client.Reader) handler.EventHandler {
	all := func(ctx context.Context, node string, q queue) {
		var list v1alpha1.ReservationList
		if err := reader.List(ctx, &list, client.MatchingFields{nodeIndex: node}, client.UnsafeDisableDeepCopy); err != nil {
			return // the process is going down: the cache does not fail otherwise
		}
		for i := range list.Items {
			soon(q, list.Items[i].Name)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { all(ctx, e.Object.GetName(), q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if was, is := e.ObjectOld.(*v1.Node), e.ObjectNew.(*v1.Node); was.Spec.Unschedulable != is.Spec.Unschedulable ||
				notReady(was) != notReady(is) {
				all(ctx, e.ObjectNew.GetName(), q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { all(ctx, e.Object.GetName(), q) },
	}
}

// notReady reports whether a node is cut off or has died. The taints say so; the cache has no conditions.
func notReady(node *v1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeNotReady || t.Key == v1.TaintNodeUnreachable
	})
}
