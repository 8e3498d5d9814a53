package claimrelease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// Releaser deallocates claims that no pod uses: they were allocated for pods that were not bound in the end. While
// allocated they keep devices from others, and tie the pods that use them to nodes. It deletes claims that
// kube-scheduler created for extended resources of such pods.
type Releaser struct {
	claims fwk.ResourceClaimTracker
	known  cache.Indexer
	client resourceclient.ResourceClaimsGetter
	users  Users
	queue  workqueue.TypedRateLimitingInterface[workItem]

	mu sync.Mutex
	// waiting are claims that were deleted and still exist, by the pods that they were created for: these pods wait.
	waiting map[types.UID]map[types.NamespacedName]types.UID
}

// Users are the pods that use claims, or are about to.
type Users interface {
	// Withdraw reports whether no pod has a claim or is about to; reservedFor are the pods that it is reserved for. If so,
	// none of them proceeds until Withdrawn: kube-scheduler would bind them without reading from the API server.
	Withdraw(ctx context.Context, claim types.NamespacedName, reservedFor []types.UID) bool
	// Withdrawn is called when kube-scheduler sees the outcome for the claim.
	Withdrawn(ctx context.Context, claim types.NamespacedName)
}

// workItem is a queue item: a claim by name or, with a pod, the claims created for its extended resources.
type workItem struct {
	types.NamespacedName
	pod types.UID
}

// After an error an item is retried after minBackoff, then after twice as long each time, at most after maxBackoff:
// gangs wait for it.
const minBackoff, maxBackoff = 5 * time.Millisecond, 5 * time.Second

// NewReleaser returns a Releaser. It works once [Releaser.Run] is called. The informer of claims must not run yet.
func NewReleaser(claims fwk.ResourceClaimTracker, informer cache.SharedIndexInformer,
	client resourceclient.ResourceClaimsGetter,
	users Users) (*Releaser, error) {
	if err := indexMade(informer); err != nil {
		return nil, err
	}
	return &Releaser{
		claims: claims, known: informer.GetIndexer(), client: client, users: users,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[workItem](minBackoff,
			maxBackoff)),
		waiting: map[types.UID]map[types.NamespacedName]types.UID{},
	}, nil
}

// Enqueue queues the claims of pods. It is fast if they have none. A claim in backoff is retried when its backoff ends.
// A nil Releaser does nothing.
func (r *Releaser) Enqueue(pods ...*v1.Pod) {
	if r == nil {
		return
	}
	for _, pod := range pods {
		for i := range pod.Spec.ResourceClaims {
			name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
			if err == nil && name != nil { // otherwise it has not been made
				r.enqueueItem(workItem{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: *name}})
			}
		}
		if mayBeBacked(pod) {
			r.enqueueItem(workItem{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod: pod.UID})
		}
	}
}

func (r *Releaser) enqueueItem(at workItem) {
	if r.queue.NumRequeues(at) == 0 {
		r.queue.Add(at)
	}
}

// workers is how many claims are handled at a time: a claim whose calls get no answer does not block the others.
const workers = 4

// Run works until the context ends.
func (r *Releaser) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, r.queue.ShutDown)()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { r.runWorker(ctx) })
	}
	group.Wait()
}

func (r *Releaser) runWorker(ctx context.Context) {
	for {
		key, done := r.queue.Get()
		if done {
			return
		}
		if err := r.process(ctx, key); errors.Is(err, errStays) {
			r.queue.Forget(key)
			r.queue.AddAfter(key, retryPause)
		} else if err != nil {
			klog.FromContext(ctx).Error(err,
				"Failed to take back the allocation of a ResourceClaim that no pod uses; trying again", "of", key.NamespacedName)
			r.queue.AddRateLimited(key)
		} else {
			r.queue.Forget(key)
		}
		r.queue.Done(key)
	}
}

func (r *Releaser) process(ctx context.Context, at workItem) error {
	if at.pod == "" {
		return r.release(ctx, at.NamespacedName)
	}
	if err := r.resumePod(ctx, at.pod); err != nil {
		return err
	}
	made, err := madeFor(at.pod, r.known)
	if err != nil {
		return err
	}
	for _, claim := range made {
		if err := r.dropMadeClaim(ctx, claim, at.pod); err != nil {
			return err
		}
	}
	return nil
}

// errStays: a deleted claim still exists, because of a finalizer for example.
var errStays = errors.New("the claim was deleted, and is still there")

// holdPod makes a pod wait until a claim that was created for it is gone.
func (r *Releaser) holdPod(pod types.UID, claim *resourceapi.ResourceClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	nested.Set(r.waiting, pod, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, claim.UID)
}

// resumePod lets a pod proceed if kube-scheduler no longer sees the claims that it waited for. It returns errStays if
// the pod still waits.
func (r *Releaser) resumePod(ctx context.Context, pod types.UID) error {
	r.mu.Lock()
	waits := maps.Clone(r.waiting[pod])
	r.mu.Unlock()
	for key, uid := range waits {
		claim, err := r.claims.Get(key.Namespace, key.Name)
		if errors.Is(err, assumecache.ErrNotFound) || err == nil && claim.UID != uid {
			r.users.Withdrawn(ctx, key)
			delete(waits, key)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(waits) > 0 {
		r.waiting[pod] = waits
		return errStays
	}
	delete(r.waiting, pod)
	return nil
}

const (
	// releaseTimeout bounds a call for a claim, and the calls that delete one.
	releaseTimeout = 10 * time.Second
	// retryPause is the pause after a call whose outcome is unknown.
	retryPause = 500 * time.Millisecond
)

// release deallocates a claim if no pod uses it.
func (r *Releaser) release(ctx context.Context, key types.NamespacedName) error {
	claim, err := r.claims.Get(key.Namespace, key.Name)
	switch {
	case errors.Is(err, assumecache.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading claim: %w", err)
	case claim.Status.Allocation == nil || claim.DeletionTimestamp != nil ||
		!r.users.Withdraw(ctx, key, consumersOf(claim)):
		return nil
	}
	defer r.users.Withdrawn(ctx, key)
	now, err := r.deallocate(ctx, claim)
	if now != nil {
		// It fails if the cache is newer, or has no such claim; both are fine.
		_ = r.claims.AssumeClaimAfterAPICall(now)
	}
	return err
}

// deallocate removes the allocation of a claim, and returns the updated claim; nil if it is gone. It repeats a call
// with unknown outcome: pods must not proceed with an allocation that they may have lost.
func (r *Releaser) deallocate(ctx context.Context,
	claim *resourceapi.ResourceClaim) (now *resourceapi.ResourceClaim, err error) {
	free := claim.DeepCopy()
	free.Status = resourceapi.ResourceClaimStatus{}
	claims := r.client.ResourceClaims(claim.Namespace)
	err = r.untilAnswered(ctx, klog.KObj(claim), func(ctx context.Context) error {
		now, err = claims.UpdateStatus(ctx, free, metav1.UpdateOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsConflict(err):
		// It has changed, or an earlier call succeeded.
		var read error
		err := r.untilAnswered(ctx, klog.KObj(claim), func(ctx context.Context) error {
			now, read = claims.Get(ctx, claim.Name, metav1.GetOptions{})
			return read
		})
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err == nil && now.Status.Allocation != nil {
			err = fmt.Errorf("claim has changed meanwhile: version %s, not %s", now.ResourceVersion, claim.ResourceVersion)
		}
		return now, err
	case err != nil:
		return nil, fmt.Errorf("updating status of claim: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Took back the allocation of a ResourceClaim that no pod uses",
		"resourceclaim", klog.KObj(claim))
	return now, nil
}

// untilAnswered repeats a call until the API server has answered it.
func (r *Releaser) untilAnswered(ctx context.Context, of klog.ObjectRef,
	call func(ctx context.Context) error) (err error) {
	stopped := wait.PollUntilContextCancel(ctx, retryPause, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
		defer cancel()
		err = call(ctx)
		done := err == nil || answered(err)
		if !done {
			klog.FromContext(ctx).Error(err, "Unknown whether the allocation of a ResourceClaim was taken back; trying again",
				"resourceclaim", of)
		}
		return done, nil
	})
	return cmp.Or(err, stopped)
}

// answered reports whether an error is a final answer of the API server: the call has changed nothing.
func answered(err error) bool {
	switch reason := apierrors.ReasonForError(err); reason {
	case metav1.StatusReasonUnknown, metav1.StatusReasonInternalError, metav1.StatusReasonTimeout,
		metav1.StatusReasonServerTimeout,
		metav1.StatusReasonServiceUnavailable, metav1.StatusReasonTooManyRequests:
		return false
	default:
		return true
	}
}

// dropMadeClaim deletes a claim that was created for a pod, if the pod does not use it. If the claim has changed
// meanwhile, the API server refuses, and the claim is retried. If the claim still exists then, the pod waits until it
// is gone, since kube-scheduler refuses the pod until then.
func (r *Releaser) dropMadeClaim(ctx context.Context, claim *resourceapi.ResourceClaim, pod types.UID) error {
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	if !r.users.Withdraw(ctx, key, append(consumersOf(claim), pod)) {
		return nil
	}
	err := r.deleteClaim(ctx, claim)
	if errors.Is(err, errStays) {
		r.holdPod(pod, claim)
		klog.FromContext(ctx).Error(err, "A pod waits until a ResourceClaim for its extended resources is gone",
			"resourceclaim", key)
		return err
	}
	r.users.Withdrawn(ctx, key)
	return err
}

// deleteClaim deletes a claim, and returns when kube-scheduler no longer sees it.
func (r *Releaser) deleteClaim(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if i := slices.Index(claim.Finalizers, resourceapi.Finalizer); i >= 0 { // the finalizer waits for the end of the pod
		claim = claim.DeepCopy()
		claim.Finalizers = slices.Delete(claim.Finalizers, i, i+1)
		now, err := r.client.ResourceClaims(key.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return r.awaitGone(ctx, key, claim.UID)
		}
		if err != nil {
			return fmt.Errorf("taking the finalizer off a claim for extended resources: %w", err)
		}
		claim = now
	}
	err := r.client.ResourceClaims(key.Namespace).Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &claim.UID, ResourceVersion: &claim.ResourceVersion},
	})
	switch {
	case apierrors.IsNotFound(err):
		return r.awaitGone(ctx, key, claim.UID)
	case err != nil:
		return fmt.Errorf("deleting a claim for extended resources: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Deleted a ResourceClaim for extended resources of a pod that was not bound",
		"resourceclaim", key)
	return r.awaitGone(ctx, key, claim.UID)
}

const (
	// seenWithin is how long kube-scheduler may take to see that a claim is gone.
	seenWithin = 2 * time.Second
	seenPoll   = 5 * time.Millisecond
)

// awaitGone returns when kube-scheduler no longer sees a deleted claim: until then it refuses the claim's pod. It
// returns errStays if that takes long, for example because of a finalizer.
func (r *Releaser) awaitGone(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	err := wait.PollUntilContextTimeout(ctx, seenPoll, seenWithin, true, func(context.Context) (bool, error) {
		claim, err := r.claims.Get(key.Namespace, key.Name)
		if errors.Is(err, assumecache.ErrNotFound) {
			return true, nil
		}
		return err == nil && claim.UID != uid, err
	})
	if wait.Interrupted(err) {
		return errStays
	}
	return err
}

func consumersOf(claim *resourceapi.ResourceClaim) []types.UID {
	uids := make([]types.UID, len(claim.Status.ReservedFor))
	for i := range claim.Status.ReservedFor {
		uids[i] = claim.Status.ReservedFor[i].UID
	}
	return uids
}
