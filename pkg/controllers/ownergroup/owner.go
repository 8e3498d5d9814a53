package ownergroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
)

// errNoOwner: the owner of the pods does not exist, or is not in the cache yet.
var errNoOwner = errors.New("owner not found")

// desire reads the owner of a gang from the cache, and returns what its PodGroup should be. It returns errNoOwner where
// there is no owner.
func (r *reconciler) desire(ctx context.Context, namespace string, owner gangspec.Owner,
	pods []*v1.Pod) (ownedpodgroup.Desired, error) {
	object, err := r.read(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, owner.Kind)
	if err != nil {
		return ownedpodgroup.Desired{}, err
	}
	return ownedpodgroup.Of(owner, object, pods)
}

// readWithin is how long a gang of a kind that cannot be watched may occupy a worker.
const readWithin = 5 * time.Second

// read reads an owner from the cache, which watches its kind from now on.
func (r *reconciler) read(ctx context.Context, key types.NamespacedName,
	kind gangspec.OwnerKind) (client.Object, error) {
	if err := r.watches[kind].Ensure(); err != nil {
		return nil, err
	}
	object := newOwner(kind)
	ctx, cancel := context.WithTimeout(ctx, readWithin) // it waits for the watch, which may never start
	defer cancel()
	err := r.cache.Get(ctx, key, object, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, errNoOwner
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind, key, err)
	}
	return object, nil
}

// newOwner returns an empty object of a kind, to read into. JobSets and LeaderWorkerSets are read unstructured.
func newOwner(kind gangspec.OwnerKind) client.Object {
	if kind == gangspec.OwnerJob {
		return &batchv1.Job{}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(ownedpodgroup.Kinds[kind])
	return u
}
