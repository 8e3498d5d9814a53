package reservationlifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/setup"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
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

// Setup adds the controller to a manager, whose cache may keep no more than package cachetransform says. Where the
// API server does not serve Reservations, the controller waits until it does; pods and nodes are watched
// from when there is a Reservation.
func Setup(mgr manager.Manager, o Options) error {
	if o.KeepEnded < 0 {
		return fmt.Errorf("checking how long Reservations that have ended are kept: %s is negative", o.KeepEnded)
	}
	return setup.WhenServed(mgr, v1alpha1.SchemeGroupVersion.WithKind("Reservation"), func(ctx context.Context) error {
		return start(ctx, mgr, o)
	})
}

func start(ctx context.Context, mgr manager.Manager, o Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.Reservation{}, nodeIndex, nodesOf); err != nil {
		return fmt.Errorf("indexing Reservations by node: %w", err)
	}
	registerMetrics(mgr.GetClient(), clock.RealClock{})
	r := &reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: mgr.GetEventRecorder(objects.FieldOwner),
		clock: clock.RealClock{}, keep: o.KeepEnded,
	}
	err := r.cluster.Prepare(func() (func() error, error) {
		c, err := builder.ControllerManagedBy(mgr).Named(name).
			Watches(&v1alpha1.Reservation{}, setup.Enqueue(settle, setup.Itself)).
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
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &v1.Pod{},
		setup.Enqueue(settle, setup.Concern[*v1.Pod](usedBy).Requests),
		setup.Changed(podDiffers))); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &v1.Node{},
		setup.Enqueue(settle, heldOn(mgr.GetClient())),
		setup.Changed(nodeDiffers))); err != nil {
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
	if !ok || rsv.DeletionTimestamp != nil {
		return nil
	}
	var nodes []string
	for _, p := range reservationstate.Held(rsv) {
		nodes = append(nodes, p.NodeName)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// usedBy returns the Reservation that a pod uses.
func usedBy(pod *v1.Pod) (types.NamespacedName, bool) {
	use, ok := reservationstate.AllocationOf(pod)
	return types.NamespacedName{Name: use.Name}, ok
}

// named returns the request for a Reservation, or a node.
func named(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// podDiffers reports whether a pod uses something else than it did, or more or less of it.
func podDiffers(a, b *v1.Pod) bool {
	const key = v1alpha1.ReservationAllocatedAnnotation
	if a.Annotations[key] == "" && b.Annotations[key] == "" {
		return false
	}
	return a.UID != b.UID || a.Annotations[key] != b.Annotations[key] || a.Spec.NodeName != b.Spec.NodeName ||
		objectstate.HasEnded(a) != objectstate.HasEnded(b) ||
		!equality.Semantic.DeepEqual(resource.Requests(a), resource.Requests(b))
}

// heldOn returns requests for the Reservations on a node.
func heldOn(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, node client.Object) (requests []reconcile.Request) {
		var list v1alpha1.ReservationList
		if err := reader.List(ctx, &list, client.MatchingFields{nodeIndex: node.GetName()},
			client.UnsafeDisableDeepCopy); err != nil {
			return nil // the process is going down: the cache does not fail otherwise
		}
		for i := range list.Items {
			requests = append(requests, named(list.Items[i].Name))
		}
		return requests
	}
}

// nodeDiffers reports whether a node no longer takes pods, or does again.
func nodeDiffers(was, is *v1.Node) bool {
	return was.Spec.Unschedulable != is.Spec.Unschedulable || objectstate.IsReady(was) != objectstate.IsReady(is)
}
