package devices

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// Releaser takes back the allocation of claims that nobody uses: they were allocated for pods that were not bound after
// all. As long as they are allocated they keep devices from others, and bind the pods that use them to nodes. It
// works beside the scheduling goroutine.
type Releaser struct {
	claims fwk.ResourceClaimTracker
	client resourceclient.ResourceClaimsGetter
	// unused reports whether no pod has a claim or is on its way to it; it is told for which it is reserved.
	unused func(claim types.NamespacedName, reservedFor []types.UID) bool
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]
}

// NewReleaser makes one. It works once [Releaser.Run] is called.
func NewReleaser(claims fwk.ResourceClaimTracker, client resourceclient.ResourceClaimsGetter, unused func(claim types.NamespacedName, reservedFor []types.UID) bool) *Releaser {
	return &Releaser{
		claims: claims, client: client, unused: unused,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
	}
}

// Consider has the claims of pods looked at. It is quick where they have none. A nil Releaser does nothing.
func (r *Releaser) Consider(pods ...*v1.Pod) {
	if r == nil {
		return
	}
	for _, pod := range pods {
		for i := range pod.Spec.ResourceClaims {
			name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
			if err == nil && name != nil { // else it has not been made
				r.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: *name})
			}
		}
	}
}

// Run works until the context ends.
func (r *Releaser) Run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		r.queue.ShutDown()
	}()
	for {
		key, done := r.queue.Get()
		if done {
			return
		}
		if err := r.release(ctx, key); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to take back the allocation of a ResourceClaim that nobody uses; trying again", "resourceclaim", key)
			r.queue.AddRateLimited(key)
		} else {
			r.queue.Forget(key)
		}
		r.queue.Done(key)
	}
}

// releaseTimeout bounds one call.
const releaseTimeout = 10 * time.Second

// release takes back the allocation of a claim, if nobody uses it. If the claim has changed meanwhile, the API
// server refuses, and it is looked at again.
func (r *Releaser) release(ctx context.Context, key types.NamespacedName) error {
	claim, err := r.claims.Get(key.Namespace, key.Name)
	switch {
	case errors.Is(err, assumecache.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading claim: %w", err)
	case claim.Status.Allocation == nil || claim.DeletionTimestamp != nil || !r.unused(key, consumersOf(claim)):
		return nil
	}
	free := claim.DeepCopy()
	free.Status = resourceapi.ResourceClaimStatus{}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	_, err = r.client.ResourceClaims(key.Namespace).UpdateStatus(ctx, free, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("updating status of claim: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Took back the allocation of a ResourceClaim that nobody uses", "resourceclaim", key)
	return nil
}

func consumersOf(claim *resourceapi.ResourceClaim) []types.UID {
	uids := make([]types.UID, len(claim.Status.ReservedFor))
	for i := range claim.Status.ReservedFor {
		uids[i] = claim.Status.ReservedFor[i].UID
	}
	return uids
}
