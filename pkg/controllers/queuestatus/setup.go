package queuestatus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/planning/devices"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// name is the name of the controller in logs and metrics.
const name = "queue"

// The kinds of objects that may name the queue of a gang. Only their metadata is read.
var (
	community = schedulingv1alpha1.SchemeGroupVersion.WithKind("PodGroup")
	native    = schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")
)

// deviceSlices have the devices of nodes.
var deviceSlices = resourceapi.SchemeGroupVersion.WithKind("ResourceSlice")

// reservations hold capacity, which counts in their queues.
var reservations = v1alpha1.SchemeGroupVersion.WithKind("Reservation")

// Options of the controller.
type Options struct {
	// SchedulerNames are the schedulers that use queues: only their pods are counted, and
	// what other pods have on nodes is not there to be shared. At least one.
	SchedulerNames []string
	// Policies are the policies for shares of queues that FairShare uses in any tier: proportion,
	// capacity.
	Policies []string
	// Pools and DeviceClasses are those of FairShareArgs.
	Pools         []config.Pool
	DeviceClasses map[string]v1.ResourceName
}

func (o Options) validate() error {
	if len(o.SchedulerNames) == 0 {
		return errors.New("checking the schedulers that use queues: none is named")
	}
	if slices.Contains(o.SchedulerNames, "") {
		return errors.New("checking the schedulers that use queues: a name is empty")
	}
	for _, policy := range o.Policies {
		if known := []string{string(config.PolicyProportion),
			string(config.PolicyCapacity)}; !slices.Contains(known, policy) {
			return fmt.Errorf("checking the policies of queues: %q is none of %v", policy, known)
		}
	}
	if _, err := pools.New(o.Pools); err != nil {
		return fmt.Errorf("checking the pools of nodes: %w", err)
	}
	return nil
}

func (o Options) rules() share.Rules {
	return share.Rules{Weighted: slices.Contains(o.Policies, string(config.PolicyProportion)),
		Stated: slices.Contains(o.Policies, string(config.PolicyCapacity))}
}

// Setup adds the controller to a manager, whose cache may use the transforms of this
// package. Where the API server does not serve Queues, the controller waits until it does;
// everything else is watched from when there is a queue. The PodGroups of the community are watched
// whenever their CRD comes, the native ones if the API server serves them by then.
func Setup(mgr manager.Manager, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(mgr.GetScheme()); err != nil {
		return fmt.Errorf("adding queues to the scheme: %w", err)
	}
	r := &reconciler{client: mgr.GetClient(), clock: clock.RealClock{}, schedulers: map[string]bool{}, rules: o.rules(),
		pools: o.Pools, devices: devices.NewCounts(o.DeviceClasses)}
	for _, name := range o.SchedulerNames {
		r.schedulers[name] = true
	}
	wait := manager.RunnableFunc(func(ctx context.Context) error {
		if !crds.Await(ctx, mgr.GetRESTMapper(), v1alpha1.SchemeGroupVersion.WithKind("Queue")) {
			return nil
		}
		return start(mgr, r)
	})
	if err := mgr.Add(wait); err != nil {
		return fmt.Errorf("adding the %s controller: %w", name, err)
	}
	return nil
}

func start(mgr manager.Manager, r *reconciler) error {
	return r.cluster.Prepare(func() (func() error, error) {
		c, err := builder.ControllerManagedBy(mgr).Named(name).
			Watches(&v1alpha1.Queue{}, events()).
			WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
			Build(r)
		if err != nil {
			return nil, fmt.Errorf("starting the %s controller: %w", name, err)
		}
		return func() error { return watchCluster(mgr, c, r) }, nil
	})
}

// watchCluster watches what queues share, and what decides which pods are in them. It may be called again
// where it failed: then some is watched twice, which costs and does no harm.
func watchCluster(mgr manager.Manager, c controller.Controller, r *reconciler) error {
	for _, watch := range []struct {
		object client.Object
		differ func(was, is client.Object) bool
	}{
		{&v1.Pod{}, podDiffers}, {&v1.Node{}, nodeDiffers}, {&v1.Namespace{}, namespaceDiffers},
	} {
		if err := c.Watch(source.Kind(mgr.GetCache(), watch.object, events(), changes(watch.differ))); err != nil {
			return fmt.Errorf("watching %T: %w", watch.object, err)
		}
	}
	if err := watchDevices(mgr, c, r); err != nil {
		return err
	}
	_, err := mgr.GetRESTMapper().RESTMapping(native.GroupKind(), native.Version)
	switch {
	case err == nil:
		if err := watchGroup(mgr, c, r, native); err != nil {
			return err
		}
	case !meta.IsNoMatchError(err):
		return fmt.Errorf("asking the API server for native PodGroups: %w", err)
	}
	for kind, start := range map[schema.GroupVersionKind]func() error{
		community:    func() error { return watchGroup(mgr, c, r, community) },
		reservations: func() error { return watchReservations(mgr, c, r) },
	} {
		wait := manager.RunnableFunc(func(ctx context.Context) error {
			if !crds.Await(ctx, mgr.GetRESTMapper(), kind) {
				return nil
			}
			return start()
		})
		if err := mgr.Add(wait); err != nil {
			return fmt.Errorf("waiting for %s: %w", kind, err)
		}
	}
	return nil
}

// watchDevices watches which devices nodes have, and pods ask for, if the API server serves that.
func watchDevices(mgr manager.Manager, c controller.Controller, r *reconciler) error {
	_, err := mgr.GetRESTMapper().RESTMapping(deviceSlices.GroupKind(), deviceSlices.Version)
	switch {
	case meta.IsNoMatchError(err):
		return nil
	case err != nil:
		return fmt.Errorf("asking the API server for ResourceSlices: %w", err)
	}
	for object, differ := range map[client.Object]func(was, is client.Object) bool{
		&resourceapi.ResourceSlice{}: specDiffers, &resourceapi.DeviceClass{}: specDiffers,
		&resourceapi.ResourceClaim{}: claimDiffers, &resourceapi.ResourceClaimTemplate{}: specDiffers,
	} {
		if err := c.Watch(source.Kind(mgr.GetCache(), object, events(), changes(differ))); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	r.watch(deviceSlices)
	return nil
}

func watchReservations(mgr manager.Manager, c controller.Controller, r *reconciler) error {
	r.watch(reservations)
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &v1alpha1.Reservation{}, events())); err != nil {
		return fmt.Errorf("watching Reservations: %w", err)
	}
	return nil
}

func watchGroup(mgr manager.Manager, c controller.Controller, r *reconciler, kind schema.GroupVersionKind) error {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	r.watch(kind)
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), object, events(), changes(groupDiffers))); err != nil {
		return fmt.Errorf("watching PodGroups of %s: %w", kind.GroupVersion(), err)
	}
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// events queues one request for all queues soon; until then, further events cost nothing.
func events() handler.EventHandler {
	all := reconcile.Request{NamespacedName: types.NamespacedName{Name: "all"}}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q queue) { q.AddAfter(all, settle) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q queue) { q.AddAfter(all, settle) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q queue) { q.AddAfter(all, settle) },
	}
}

// changes passes updates that change what is counted.
func changes(differ func(was, is client.Object) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return differ(e.ObjectOld, e.ObjectNew) }}
}

func podDiffers(was, is client.Object) bool {
	a, aOK := was.(*v1.Pod)
	b, bOK := is.(*v1.Pod)
	return !aOK || !bOK ||
		a.UID != b.UID || ended(a) != ended(b) || a.Spec.NodeName != b.Spec.NodeName ||
		len(a.Spec.SchedulingGates) != len(b.Spec.SchedulingGates) || memberOf(a) != memberOf(b) ||
		demandOf(a) != demandOf(b) ||
		a.Labels[v1alpha1.QueueLabel] != b.Labels[v1alpha1.QueueLabel] ||
		!resourceclaim.PodStatusEqual(a.Status.ResourceClaimStatuses, b.Status.ResourceClaimStatuses) ||
		!maps.Equal(resource.OfPod(a), resource.OfPod(b)) || !equality.Semantic.DeepEqual(places(a), places(b))
}

func nodeDiffers(was, is client.Object) bool {
	a, aOK := was.(*v1.Node)
	b, bOK := is.(*v1.Node)
	return !aOK || !bOK || a.Spec.Unschedulable != b.Spec.Unschedulable || !maps.Equal(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) ||
		!equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// specDiffers reports whether the spec of an object has changed. That of a template never does.
func specDiffers(was, is client.Object) bool {
	return was.GetUID() != is.GetUID() || was.GetGeneration() != is.GetGeneration()
}

// claimDiffers reports whether a claim was allocated, or is no longer: its spec never changes.
func claimDiffers(was, is client.Object) bool {
	a, aOK := was.(*resourceapi.ResourceClaim)
	b, bOK := is.(*resourceapi.ResourceClaim)
	return !aOK || !bOK || a.UID != b.UID || !equality.Semantic.DeepEqual(a.Status.Allocation, b.Status.Allocation)
}

func namespaceDiffers(was, is client.Object) bool {
	return was.GetAnnotations()[v1alpha1.QueueLabel] != is.GetAnnotations()[v1alpha1.QueueLabel]
}

func groupDiffers(was, is client.Object) bool {
	return was.GetLabels()[v1alpha1.QueueLabel] != is.GetLabels()[v1alpha1.QueueLabel]
}
