package queuestatus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/setup"
	"github.com/lockstep-sh/lockstep/pkg/framework/cachetransform"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/pools"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// name is the name of the controller in logs and metrics.
const name = "queue"

// native is the kind of Kubernetes' own PodGroups.
var native = schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup")

// deviceSlices have the devices of nodes.
var deviceSlices = resourceapi.SchemeGroupVersion.WithKind("ResourceSlice")

// reservations hold capacity, which counts in their queues.
var reservations = v1alpha1.SchemeGroupVersion.WithKind("Reservation")

// Options of the controller.
type Options struct {
	// SchedulerNames are the schedulers that use queues: only their pods are counted, and
	// what other pods have on nodes is not there to be shared. At least one.
	SchedulerNames []string
	// NativeSchedulerNames are the schedulers that schedule the gangs of native PodGroups: others leave these to
	// kube-scheduler's own plugins.
	NativeSchedulerNames []string
	// Policies are the policies for shares of queues that FairShare uses in any tier: proportion,
	// capacity.
	Policies []string
	// Pools, DeviceClasses and EvictedHold are those of FairShareArgs.
	Pools         []config.Pool
	DeviceClasses map[string]v1.ResourceName
	EvictedHold   time.Duration
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

// Setup adds the controller to a manager, whose cache may keep no more than package cachetransform says. Where the API
// server does not serve Queues, the controller waits until it does; everything else is watched from when there is a
// queue. The PodGroups of the community are watched whenever their CRD comes, the native ones if the API server serves
// them by then.
func Setup(mgr manager.Manager, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	r := &reconciler{client: mgr.GetClient(), clock: clock.RealClock{}, schedulers: map[string]bool{},
		leaveNative: map[string]bool{}, rules: o.rules(), pools: o.Pools, evictedHold: o.EvictedHold,
		devices: clusterdevices.NewCounts(o.DeviceClasses)}
	for _, name := range o.SchedulerNames {
		r.schedulers[name], r.leaveNative[name] = true, !slices.Contains(o.NativeSchedulerNames, name)
	}
	return setup.WhenServed(mgr, v1alpha1.SchemeGroupVersion.WithKind("Queue"), func(context.Context) error {
		return start(mgr, r)
	})
}

func start(mgr manager.Manager, r *reconciler) error {
	return r.cluster.Prepare(func() (func() error, error) {
		c, err := builder.ControllerManagedBy(mgr).Named(name).
			Watches(&v1alpha1.Queue{}, setup.Enqueue(settle, allQueues)).
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
	watch := func(object client.Object, changed ...predicate.Predicate) error {
		if err := c.Watch(source.Kind(mgr.GetCache(), object, setup.Enqueue(settle, allQueues), changed...)); err != nil {
			return fmt.Errorf("watching %T %s: %w", object, object.GetObjectKind().GroupVersionKind(), err)
		}
		return nil
	}
	always := map[client.Object]predicate.Predicate{&v1.Pod{}: setup.Changed(podDiffers),
		&v1.Node{}: setup.Changed(nodeDiffers), &v1.Namespace{}: setup.Changed(namespaceDiffers)}
	devicesServed, err := served(mgr, deviceSlices)
	if err != nil {
		return err
	}
	if devicesServed {
		for _, object := range []client.Object{
			&resourceapi.ResourceSlice{}, &resourceapi.DeviceClass{}, &resourceapi.ResourceClaimTemplate{},
		} {
			always[object] = setup.Changed(specDiffers)
		}
		always[&resourceapi.ResourceClaim{}] = setup.Changed(claimDiffers)
	}
	for object, changed := range always {
		if err := watch(object, changed); err != nil {
			return err
		}
	}
	if devicesServed {
		r.watched.Store(deviceSlices, true)
	}
	watchGroup := func(kind schema.GroupVersionKind, object client.Object) error {
		r.watched.Store(kind, true)
		return watch(object, setup.Changed(groupDiffers))
	}
	nativesServed, err := served(mgr, native)
	if err == nil && nativesServed {
		err = watchGroup(native, &schedulingv1beta1.PodGroup{})
	}
	if err != nil {
		return err
	}
	if err := setup.WhenServed(mgr, coscheduling.Kind, func(context.Context) error {
		return watchGroup(coscheduling.Kind, &coscheduling.PodGroup{})
	}); err != nil {
		return err
	}
	return setup.WhenServed(mgr, reservations, func(context.Context) error {
		r.watched.Store(reservations, true)
		return watch(&v1alpha1.Reservation{})
	})
}

// served reports whether the API server serves a kind.
func served(mgr manager.Manager, kind schema.GroupVersionKind) (bool, error) {
	_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	switch {
	case meta.IsNoMatchError(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("asking the API server for the kind %s: %w", kind, err)
	}
	return true, nil
}

// allQueues returns the one request for all queues.
func allQueues(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "all"}}}
}

func podDiffers(a, b *v1.Pod) bool {
	return a.UID != b.UID || objectstate.HasEnded(a) != objectstate.HasEnded(b) || a.Spec.NodeName != b.Spec.NodeName ||
		len(a.Spec.SchedulingGates) != len(b.Spec.SchedulingGates) || gangspec.Moved(a, b) ||
		asksForNothing(a) != asksForNothing(b) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		!maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations) ||
		!resourceclaim.PodStatusEqual(a.Status.ResourceClaimStatuses, b.Status.ResourceClaimStatuses) ||
		!maps.Equal(resource.OfPod(a), resource.OfPod(b)) ||
		!equality.Semantic.DeepEqual(cachetransform.Places(a), cachetransform.Places(b))
}

func nodeDiffers(a, b *v1.Node) bool {
	return a.Spec.Unschedulable != b.Spec.Unschedulable || !maps.Equal(a.Labels, b.Labels) ||
		!equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) ||
		!equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// specDiffers reports whether the spec of an object has changed. That of a template never does.
func specDiffers(was, is client.Object) bool {
	return was.GetUID() != is.GetUID() || was.GetGeneration() != is.GetGeneration()
}

// claimDiffers reports whether a claim was allocated, or is no longer: its spec never changes.
func claimDiffers(a, b *resourceapi.ResourceClaim) bool {
	return a.UID != b.UID || !equality.Semantic.DeepEqual(a.Status.Allocation, b.Status.Allocation)
}

func namespaceDiffers(was, is *v1.Namespace) bool {
	return was.Annotations[v1alpha1.QueueLabel] != is.Annotations[v1alpha1.QueueLabel]
}

func groupDiffers(was, is client.Object) bool {
	return specDiffers(was, is) || !maps.Equal(was.GetLabels(), is.GetLabels()) ||
		!maps.Equal(was.GetAnnotations(), is.GetAnnotations())
}
