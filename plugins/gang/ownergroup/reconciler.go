package ownergroup

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/crd"
	"github.com/lockstep-sh/lockstep/plugins/gang/podgroup"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

const (
	// FieldOwner owns what the controller writes.
	FieldOwner = "lockstep-controller"
	// managedBy is the label of the PodGroups that it made.
	managedBy = "app.kubernetes.io/managed-by"
	// again is when an owner is looked for once more that was not seen yet.
	again = time.Second
	// muchLater is when a kind of owner is looked for once more that is not served.
	muchLater = 15 * time.Second
)

// reconciler makes PodGroups and has them follow their owners.
type reconciler struct {
	client client.Client
	// cache is what is watched; the client does not read JobSets and LeaderWorkerSets out of it.
	cache    client.Reader
	recorder events.EventRecorder
	// watches are those of owners, each from when a gang has one of its kind.
	watches map[gang.OwnerKind]*crd.OnDemand
	told    told
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	group := &podgroup.PodGroup{} // out of the cache, and not to be changed
	err := r.client.Get(ctx, key, group, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		group, err = nil, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading PodGroup %s: %w", key, err)
	}
	var list v1.PodList
	if err := r.client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{podIndex: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the members of gang %s: %w", key, err)
	}
	if len(list.Items) == 0 {
		r.told.forget(key)
		return reconcile.Result{}, r.tidy(ctx, group)
	}
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	owner, _ := gang.OwnerOf(pods[0])
	want, err := r.desire(ctx, key, owner, pods)
	switch {
	case errors.Is(err, errNoOwner):
		return reconcile.Result{RequeueAfter: again}, nil
	case meta.IsNoMatchError(err): // its label names a kind that this cluster does not have
		return reconcile.Result{RequeueAfter: muchLater}, nil
	}
	if err != nil || want.min == 0 {
		return reconcile.Result{}, err
	}
	r.tell(key, toTell(key, want, group))
	switch {
	case group == nil:
		return reconcile.Result{}, r.create(ctx, key, want)
	case !made(group):
		return reconcile.Result{}, nil
	default:
		return reconcile.Result{}, r.update(ctx, group, want)
	}
}

// made reports whether a PodGroup is one that this controller made.
func made(group *podgroup.PodGroup) bool { return group.Labels[managedBy] == FieldOwner }

// tidy deletes the PodGroup of a group that its LeaderWorkerSet has no more. It stays where pods are only gone
// for a while, and goes with its owner.
func (r *reconciler) tidy(ctx context.Context, group *podgroup.PodGroup) error {
	if group == nil || !made(group) {
		return nil
	}
	set, index := group.Labels[v1alpha1.LeaderWorkerSetNameLabel], group.Labels[v1alpha1.LeaderWorkerGroupLabel]
	number, err := strconv.Atoi(index)
	if set == "" || err != nil {
		return nil // none of a LeaderWorkerSet
	}
	object, err := r.read(ctx, client.ObjectKey{Namespace: group.Namespace, Name: set}, gang.OwnerLeaderWorkerSet)
	if errors.Is(err, errNoOwner) || meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	lws := &leaderWorkerSet{}
	if u, ok := object.(*unstructured.Unstructured); ok {
		if err := convert(u, lws); err != nil {
			return err
		}
	}
	if number < int(valueOr(lws.Spec.Replicas, 1)) {
		return nil
	}
	err = r.client.Delete(ctx, group, client.Preconditions{UID: &group.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting PodGroup %s/%s: %w", group.Namespace, group.Name, err)
	}
	return nil
}
