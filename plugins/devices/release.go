package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// Releaser takes back the allocation of claims that nobody uses: they were allocated for pods that were not bound after
// all. As long as they are allocated they keep devices from others, and bind the pods that use them to nodes. Claims that
// kube-scheduler made for extended resources of such pods are deleted. It works beside the scheduling goroutine.
type Releaser struct {
	claims fwk.ResourceClaimTracker
	known  cache.Indexer
	client resourceclient.ResourceClaimsGetter
	// unused reports whether no pod has a claim or is on its way to it; it is told for which it is reserved.
	unused func(claim types.NamespacedName, reservedFor []types.UID) bool
	queue  workqueue.TypedRateLimitingInterface[looked]
}

// looked is what is to be looked at: the claim of a name or, with a pod, those that were made for its extended resources.
type looked struct {
	types.NamespacedName
	pod types.UID
}

// NewReleaser makes one. It works once [Releaser.Run] is called. The informer of claims must not run yet.
func NewReleaser(claims fwk.ResourceClaimTracker, informer cache.SharedIndexInformer, client resourceclient.ResourceClaimsGetter,
	unused func(claim types.NamespacedName, reservedFor []types.UID) bool) (*Releaser, error) {
	if err := indexMade(informer); err != nil {
		return nil, err
	}
	return &Releaser{
		claims: claims, known: informer.GetIndexer(), client: client, unused: unused,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[looked]()),
	}, nil
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
				r.queue.Add(looked{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: *name}})
			}
		}
		if mayBeBacked(pod) {
			r.queue.Add(looked{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod: pod.UID})
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
		if err := r.look(ctx, key); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to take back what a ResourceClaim has that nobody uses; trying again", "of", key.NamespacedName)
			r.queue.AddRateLimited(key)
		} else {
			r.queue.Forget(key)
		}
		r.queue.Done(key)
	}
}

func (r *Releaser) look(ctx context.Context, at looked) error {
	if at.pod == "" {
		return r.release(ctx, at.NamespacedName)
	}
	made, err := madeFor(at.pod, r.known)
	if err != nil {
		return err
	}
	for _, claim := range made {
		if err := r.drop(ctx, claim, at.pod); err != nil {
			return err
		}
	}
	return nil
}

// releaseTimeout bounds the calls for one claim.
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

// drop deletes a claim that was made for a pod, if the pod does not use it. If the claim has changed meanwhile, the API server
// refuses, and it is looked at again.
func (r *Releaser) drop(ctx context.Context, claim *resourceapi.ResourceClaim, pod types.UID) error {
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	if !r.unused(key, append(consumersOf(claim), pod)) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if i := slices.Index(claim.Finalizers, resourceapi.Finalizer); i >= 0 { // it waits for the end of the pod
		claim = claim.DeepCopy()
		claim.Finalizers = slices.Delete(claim.Finalizers, i, i+1)
		now, err := r.client.ResourceClaims(key.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("taking the finalizer off a claim for extended resources: %w", err)
		}
		claim = now
	}
	err := r.client.ResourceClaims(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting a claim for extended resources: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted a ResourceClaim for extended resources of a pod that was not bound", "resourceclaim", key)
	return nil
}

func consumersOf(claim *resourceapi.ResourceClaim) []types.UID {
	uids := make([]types.UID, len(claim.Status.ReservedFor))
	for i := range claim.Status.ReservedFor {
		uids[i] = claim.Status.ReservedFor[i].UID
	}
	return uids
}
