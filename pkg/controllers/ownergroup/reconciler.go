package ownergroup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
)

const (
	// again is when an owner that is not in the cache yet is looked up again, for pods that are newer than stillNew.
	again, stillNew = time.Second, time.Minute
	// muchLater is when an owner is looked up again whose kind is not served, or that orphaned its pods.
	muchLater = 15 * time.Second
)

// reconciler makes PodGroups and updates them to follow their owners.
type reconciler struct {
	client client.Client
	// cache has what is watched; the client does not read JobSets and LeaderWorkerSets from it.
	cache    client.Reader
	recorder events.EventRecorder
	// watches are the watches of owners, each from when a gang has an owner of its kind.
	watches map[gangspec.OwnerKind]*crds.OnDemand
	// told is the last event of each gang, so that none is repeated.
	told sync.Map
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	group := &coscheduling.PodGroup{} // from the cache, and not to be changed
	found, err := objects.Read(ctx, r.client, key, group)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !found {
		group = nil
	}
	var list v1.PodList
	if err := r.client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{podIndex: key.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the members of gang %s: %w", key, err)
	}
	if len(list.Items) == 0 {
		r.told.Delete(key)
		return reconcile.Result{}, r.tidy(ctx, group)
	}
	pods := apiobjects.Pointers(list.Items)
	owner, _ := gangspec.OwnerOf(pods[0])
	want, err := r.desire(ctx, key.Namespace, owner, pods)
	switch {
	case errors.Is(err, errNoOwner) && slices.ContainsFunc(pods, isNew):
		return reconcile.Result{RequeueAfter: again}, nil
	case errors.Is(err, errNoOwner): // its pods are orphans: the next owner of its name is seen when it comes
		return reconcile.Result{RequeueAfter: muchLater}, nil
	case meta.IsNoMatchError(err): // its label names a kind that this cluster does not have
		return reconcile.Result{RequeueAfter: muchLater}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if want.Suspended {
		return reconcile.Result{}, r.tidy(ctx, group)
	}
	if want.Min == 0 {
		return reconcile.Result{}, nil
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

func isNew(pod *v1.Pod) bool { return time.Since(pod.CreationTimestamp.Time) < stillNew }

// made reports whether this controller made a PodGroup.
func made(group *coscheduling.PodGroup) bool {
	return group.Labels[gangspec.ManagedByLabel] == gangspec.LockstepController
}

// tidy resets a PodGroup whose gang has no pods, or whose owner is suspended, so that it asks for nothing: the next
// pods may be more or fewer than the last ones. It deletes a PodGroup that its owner has orphaned, or no longer has a
// part for; Kubernetes deletes it along with its owner.
func (r *reconciler) tidy(ctx context.Context, group *coscheduling.PodGroup) error {
	if group == nil || !made(group) {
		return nil
	}
	owner := metav1.GetControllerOf(group)
	drop, err := owner == nil, error(nil)
	if !drop {
		drop, err = r.scaledAway(ctx, group)
	}
	switch {
	case err != nil:
		return err
	case !drop:
		return r.update(ctx, group, ownedpodgroup.Desired{Owner: *owner})
	}
	err = r.client.Delete(ctx, group, client.Preconditions{UID: &group.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting PodGroup %s/%s: %w", group.Namespace, group.Name, err)
	}
	return nil
}

// scaledAway reports whether a PodGroup is of a group that its LeaderWorkerSet no longer has.
func (r *reconciler) scaledAway(ctx context.Context, group *coscheduling.PodGroup) (bool, error) {
	set, index := group.Labels[v1alpha1.LeaderWorkerSetNameLabel], group.Labels[v1alpha1.LeaderWorkerGroupLabel]
	number, err := strconv.Atoi(index)
	if set == "" || err != nil {
		return false, nil // not of a LeaderWorkerSet
	}
	object, err := r.read(ctx, client.ObjectKey{Namespace: group.Namespace, Name: set}, gangspec.OwnerLeaderWorkerSet)
	if errors.Is(err, errNoOwner) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return false, nil
	}
	has, err := ownedpodgroup.HasGroup(u, number)
	return !has, err
}
