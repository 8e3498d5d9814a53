package podgroup

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// name is the name of the controller of community PodGroups in logs and metrics.
const name = "podgroup"

// membership is how pods name a PodGroup of one kind.
type membership struct {
	// index is the name of the index from a PodGroup's name to its pods.
	index string
	keyOf func(*v1.Pod) (types.NamespacedName, bool)
}

var (
	described = membership{index: "gang", keyOf: describedKey}
	grouped   = membership{index: "podgroup", keyOf: groupedKey}
)

// Options of the controller.
type Options struct {
	// Workers is the number of PodGroups that are written at a time. Default: 1.
	Workers int
}

// Setup adds the controller to a manager. Where the API server does not serve
// PodGroups, the controller waits until it does; pods are watched from when there
// is a PodGroup, so that gangs by annotation cost nothing here.
func Setup(mgr manager.Manager, o Options) error {
	coscheduling.AddToScheme(mgr.GetScheme())
	wait := manager.RunnableFunc(func(ctx context.Context) error {
		if !crds.Await(ctx, mgr.GetRESTMapper(), coscheduling.Kind) {
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
	r := &reconciler{follower: follower{client: mgr.GetClient(), clock: clock.RealClock{}, joins: described}}
	return r.pods.Prepare(func() (func() error, error) {
		c, err := builder.ControllerManagedBy(mgr).Named(name).
			Watches(&coscheduling.PodGroup{}, podGroupEvents(&r.gathering)).
			WithOptions(controller.Options{MaxConcurrentReconciles: o.Workers}).
			Build(r)
		if err != nil {
			return nil, fmt.Errorf("starting the %s controller: %w", name, err)
		}
		return func() error { return r.watchPods(ctx, mgr, c) }, nil
	})
}

func (r *follower) watchPods(ctx context.Context, mgr manager.Manager, c controller.Controller) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1.Pod{}, r.joins.index, r.joins.indexOf); err != nil {
		return fmt.Errorf("indexing pods by gang: %w", err)
	}
	if err := c.Watch(source.Kind[client.Object](mgr.GetCache(), &v1.Pod{},
		podEvents(&r.gathering, r.joins.keyOf))); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}

// indexOf returns the name of the PodGroup of this kind that a pod may have, as index values.
func (m membership) indexOf(object client.Object) []string {
	if pod, ok := object.(*v1.Pod); ok {
		if key, ok := m.keyOf(pod); ok {
			return []string{key.Name}
		}
	}
	return nil
}

// describedKey returns the key of the community PodGroup that may describe the gang
// of a pod.
func describedKey(pod *v1.Pod) (types.NamespacedName, bool) {
	key, source, ok := gangstate.KeyOf(pod)
	return types.NamespacedName(key), ok && source != gangstate.FromSchedulingGroup
}

// groupedKey returns the key of the native PodGroup that a pod names.
func groupedKey(pod *v1.Pod) (types.NamespacedName, bool) {
	key, source, ok := gangstate.KeyOf(pod)
	return types.NamespacedName(key), ok && source == gangstate.FromSchedulingGroup
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// gathering is the gangs whose events gather: each is reconciled soon, and until
// then further events cost nothing.
type gathering struct {
	mu    sync.Mutex
	gangs map[types.NamespacedName]bool
}

// add queues a gang.
func (g *gathering) add(q queue, key types.NamespacedName) {
	g.mu.Lock()
	known := g.gangs[key]
	if g.gangs == nil {
		g.gangs = map[types.NamespacedName]bool{}
	}
	g.gangs[key] = true
	g.mu.Unlock()
	if !known {
		q.AddAfter(reconcile.Request{NamespacedName: key}, settle)
	}
}

// done ends the gathering for a gang that is about to be reconciled: it may miss events from
// now on.
func (g *gathering) done(key types.NamespacedName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.gangs, key)
}

func podGroupEvents(g *gathering) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			g.add(q, client.ObjectKeyFromObject(e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			g.add(q, client.ObjectKeyFromObject(e.ObjectNew))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			g.add(q, client.ObjectKeyFromObject(e.Object))
		},
	}
}

func podEvents(g *gathering, keyOf func(*v1.Pod) (types.NamespacedName, bool)) handler.EventHandler {
	member := func(object client.Object, q queue) {
		if pod, ok := object.(*v1.Pod); ok {
			if key, ok := keyOf(pod); ok {
				g.add(q, key)
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { member(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if left(e.ObjectOld, e.ObjectNew, keyOf) {
				member(e.ObjectOld, q)
			}
			member(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { member(e.Object, q) },
	}
}

// left reports whether a pod is in another gang than it was, or in none.
func left(was, is client.Object, keyOf func(*v1.Pod) (types.NamespacedName, bool)) bool {
	a, aOK := was.(*v1.Pod)
	b, bOK := is.(*v1.Pod)
	if !aOK || !bOK {
		return true
	}
	before, wasMember := keyOf(a)
	after, isMember := keyOf(b)
	return wasMember != isMember || before != after
}

// StripPod is a transform for the cache: it drops what this package does not read
// of a pod. For pods outside gangs it keeps only their names.
func StripPod(object any) (any, error) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		return object, nil
	}
	stripped := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
	}}
	_, native := groupedKey(pod)
	if _, ok := describedKey(pod); !ok && !native {
		return stripped, nil
	}
	stripped.CreationTimestamp, stripped.DeletionTimestamp = pod.CreationTimestamp, pod.DeletionTimestamp
	stripped.Labels, stripped.Annotations = pod.Labels, pod.Annotations
	delete(stripped.Annotations, v1.LastAppliedConfigAnnotation)
	stripped.OwnerReferences, stripped.Finalizers = pod.OwnerReferences, pod.Finalizers
	stripped.Spec = v1.PodSpec{
		NodeName: pod.Spec.NodeName, SchedulerName: pod.Spec.SchedulerName, SchedulingGroup: pod.Spec.SchedulingGroup,
		Priority: pod.Spec.Priority, SchedulingGates: pod.Spec.SchedulingGates, ResourceClaims: pod.Spec.ResourceClaims,
	}
	if resource.CheckPod(pod) != nil {
		stripped.Spec.Containers, stripped.Spec.InitContainers, stripped.Spec.Resources = pod.Spec.Containers,
			pod.Spec.InitContainers, pod.Spec.Resources
	}
	stripped.Status.Phase, stripped.Status.ResourceClaimStatuses = pod.Status.Phase, pod.Status.ResourceClaimStatuses
	for i := range pod.Status.Conditions {
		switch pod.Status.Conditions[i].Type {
		case v1.PodScheduled, v1.DisruptionTarget:
			stripped.Status.Conditions = append(stripped.Status.Conditions, pod.Status.Conditions[i])
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil {
			state := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: t.FinishedAt}}
			stripped.Status.ContainerStatuses = append(stripped.Status.ContainerStatuses, v1.ContainerStatus{State: state})
		}
	}
	return stripped, nil
}
