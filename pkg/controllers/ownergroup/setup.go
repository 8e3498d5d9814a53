package ownergroup

import (
	"context"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/setup"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
)

const (
	// name is the name of the controller in logs and metrics.
	name = "ownergroup"
	// podIndex is the name of the index from a gang's name to its pods, groupIndex that from the UID of an owner
	// to the PodGroups that were made for it.
	podIndex, groupIndex = "gang-by-owner", "owner"
)

// Setup adds the controller to a manager, whose cache may keep no more than package cachetransform says. Where the API
// server does not serve PodGroups, the controller waits until it does. JobSets and LeaderWorkerSets are watched from
// when the pods of one ask for a gang; Jobs always, since the keys of one that has them in the wrong place ask for
// nothing. As many PodGroups as there are workers are made or changed at a time.
func Setup(mgr manager.Manager, workers int) error {
	return setup.WhenServed(mgr, coscheduling.Kind, func(ctx context.Context) error { return start(ctx, mgr, workers) })
}

func start(ctx context.Context, mgr manager.Manager, workers int) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1.Pod{}, podIndex, byOwner.Index); err != nil {
		return fmt.Errorf("indexing pods by gang: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &coscheduling.PodGroup{}, groupIndex, ownerOf); err != nil {
		return fmt.Errorf("indexing PodGroups by owner: %w", err)
	}
	r := &reconciler{client: mgr.GetClient(), cache: mgr.GetCache(), recorder: mgr.GetEventRecorder(objects.FieldOwner),
		watches: map[gangspec.OwnerKind]*crds.OnDemand{}}
	var c controller.Controller
	built := make(chan struct{})
	for kind := range ownedpodgroup.Kinds {
		r.watches[kind] = &crds.OnDemand{}
		err := r.watches[kind].Prepare(func() (func() error, error) {
			return func() error {
				<-built
				return r.watchOwners(mgr, c, kind)
			}, nil
		})
		if err != nil {
			return err
		}
	}
	c, err := builder.ControllerManagedBy(mgr).Named(name).
		Watches(&v1.Pod{}, setup.Enqueue(0, byOwner.Requests), builder.WithPredicates(setup.Changed(podDiffers))).
		Watches(&coscheduling.PodGroup{}, setup.Enqueue(0, setup.Itself),
			builder.WithPredicates(setup.Changed(podGroupDiffers))).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Build(r)
	if err != nil {
		return fmt.Errorf("starting the %s controller: %w", name, err)
	}
	close(built)
	return r.watches[gangspec.OwnerJob].Ensure()
}

// watchOwners watches a kind of owner, if the API server serves it.
func (r *reconciler) watchOwners(mgr manager.Manager, c controller.Controller, kind gangspec.OwnerKind) error {
	gvk := ownedpodgroup.Kinds[kind]
	if _, err := mgr.GetRESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
		return fmt.Errorf("looking for the kind %s: %w", kind, err)
	}
	if err := c.Watch(source.Kind(mgr.GetCache(), newOwner(kind), r.ownerEvents(kind))); err != nil {
		return fmt.Errorf("watching the kind %s: %w", kind, err)
	}
	return nil
}

// byOwner is the gang that a pod is in by its owner.
var byOwner = setup.Concern[*v1.Pod](keyOf)

func keyOf(pod *v1.Pod) (types.NamespacedName, bool) {
	key, source, ok := gangspec.KeyOf(pod)
	return types.NamespacedName(key), ok && source == gangspec.FromOwner
}

// ownerOf returns the UID of the object for which a PodGroup was made, as index values.
func ownerOf(object client.Object) []string {
	if uid := gangspec.MadeFor(object); uid != "" {
		return []string{string(uid)}
	}
	return nil
}

// podDiffers reports whether a pod is another one of its name, or in another gang.
func podDiffers(was, is *v1.Pod) bool {
	return was.UID != is.UID || !slices.Equal(byOwner.Index(was), byOwner.Index(is))
}

// podGroupDiffers reports whether a PodGroup has changed beyond its status.
func podGroupDiffers(was, is *coscheduling.PodGroup) bool {
	return was.Generation != is.Generation || !maps.Equal(was.Labels, is.Labels) ||
		!maps.Equal(was.Annotations, is.Annotations) ||
		!equality.Semantic.DeepEqual(was.OwnerReferences, is.OwnerReferences)
}

// ownerEvents queues the gangs of an owner that is new, or has another spec, and reports its keys that have no effect.
func (r *reconciler) ownerEvents(kind gangspec.OwnerKind) handler.EventHandler {
	add := func(ctx context.Context, object client.Object, q setup.Queue) {
		whole := gangspec.Owner{Kind: kind, Name: object.GetName()}
		q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(),
			Name: whole.GangName()}})
		var list coscheduling.PodGroupList
		if err := r.client.List(ctx, &list, client.InNamespace(object.GetNamespace()),
			client.MatchingFields{groupIndex: string(object.GetUID())}, client.UnsafeDisableDeepCopy); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to list the PodGroups of an owner", "kind", kind,
				"owner", klog.KObj(object))
			return
		}
		for i := range list.Items {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	tell := func(old, object client.Object) {
		for _, one := range ignored(kind, old, object) {
			one.Record(r.recorder)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q setup.Queue) {
			tell(nil, e.Object)
			add(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q setup.Queue) {
			tell(e.ObjectOld, e.ObjectNew)
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
				failedMore(e.ObjectOld, e.ObjectNew) {
				add(ctx, e.ObjectNew, q)
			}
		},
	}
}

// failedMore reports whether more indexes of a Job have failed for good, or fewer.
func failedMore(was, now client.Object) bool {
	a, isJob := was.(*batchv1.Job)
	b, both := now.(*batchv1.Job)
	return isJob && both && ownedpodgroup.FailedIndexes(a) != ownedpodgroup.FailedIndexes(b)
}
