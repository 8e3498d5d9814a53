package devices

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
)

// Releaser takes back the allocation of claims that no pod uses: they were allocated for pods that were not bound after
// all. As long as they are allocated they keep devices from others, and bind the pods that use them to nodes. Claims that
// kube-scheduler made for extended resources of such pods are deleted. It runs beside the scheduling goroutine.
type Releaser struct {
	claims fwk.ResourceClaimTracker
	known  cache.Indexer
	client resourceclient.ResourceClaimsGetter
	users  Users
	queue  workqueue.TypedRateLimitingInterface[looked]

	mu sync.Mutex
	// staying are claims that were deleted and still exist, by the pods that they were made for: these pods wait.
	staying map[types.UID]map[types.NamespacedName]types.UID
}

// Users are the pods that use claims, or are on their way to them.
type Users interface {
	// Withdraw reports whether no pod has a claim or is on its way to it; reservedFor are the pods that it is reserved for. If
	// so, none of them proceeds until Withdrawn: kube-scheduler would bind them without a look at the API server.
	Withdraw(ctx context.Context, claim types.NamespacedName, reservedFor []types.UID) bool
	// Withdrawn is called when kube-scheduler sees the outcome for the claim.
	Withdrawn(ctx context.Context, claim types.NamespacedName)
}

// looked is a queue item: the claim of a name or, with a pod, the claims that were made for its extended resources.
type looked struct {
	types.NamespacedName
	pod types.UID
}

// After an error an item is tried again after soonest, then after twice as long each time, at most after latest: gangs wait for it.
const soonest, latest = 5 * time.Millisecond, 5 * time.Second

// NewReleaser makes a Releaser. It works once [Releaser.Run] is called. The informer of claims must not run yet.
func NewReleaser(claims fwk.ResourceClaimTracker, informer cache.SharedIndexInformer, client resourceclient.ResourceClaimsGetter,
	users Users) (*Releaser, error) {
	if err := indexMade(informer); err != nil {
		return nil, err
	}
	return &Releaser{
		claims: claims, known: informer.GetIndexer(), client: client, users: users,
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[looked](soonest, latest)),
		staying: map[types.UID]map[types.NamespacedName]types.UID{},
	}, nil
}

// Consider queues the claims of pods. It is quick where they have none. After an error a moment ago a claim is tried again when its
// backoff ends. A nil Releaser does nothing.
func (r *Releaser) Consider(pods ...*v1.Pod) {
	if r == nil {
		return
	}
	for _, pod := range pods {
		for i := range pod.Spec.ResourceClaims {
			name, _, err := resourceclaim.Name(pod, &pod.Spec.ResourceClaims[i])
			if err == nil && name != nil { // otherwise it has not been made
				r.consider(looked{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: *name}})
			}
		}
		if mayBeBacked(pod) {
			r.consider(looked{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, pod: pod.UID})
		}
	}
}

func (r *Releaser) consider(at looked) {
	if r.queue.NumRequeues(at) == 0 {
		r.queue.Add(at)
	}
}

// releasers is how many claims are handled at a time: a claim whose calls get no answer does not block the others.
const releasers = 4

// Run works until the context ends.
func (r *Releaser) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, r.queue.ShutDown)()
	var group sync.WaitGroup
	for range releasers {
		group.Go(func() { r.work(ctx) })
	}
	group.Wait()
}

func (r *Releaser) work(ctx context.Context) {
	for {
		key, done := r.queue.Get()
		if done {
			return
		}
		if err := r.look(ctx, key); errors.Is(err, errStays) {
			r.queue.Forget(key)
			r.queue.AddAfter(key, askAgain)
		} else if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to take back the allocation of a ResourceClaim that no pod uses; trying again", "of", key.NamespacedName)
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
	if err := r.letGo(ctx, at.pod); err != nil {
		return err
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

// errStays: a claim was deleted, and still exists: because of a finalizer, say.
var errStays = errors.New("the claim was deleted, and is still there")

// stay makes a pod wait until a claim that was made for it is gone.
func (r *Releaser) stay(pod types.UID, claim *resourceapi.ResourceClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.staying[pod] == nil {
		r.staying[pod] = map[types.NamespacedName]types.UID{}
	}
	r.staying[pod][types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim.UID
}

// letGo lets a pod proceed that waited for claims which kube-scheduler sees no more. It returns errStays where the pod still waits.
func (r *Releaser) letGo(ctx context.Context, pod types.UID) error {
	r.mu.Lock()
	waits := maps.Clone(r.staying[pod])
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
		r.staying[pod] = waits
		return errStays
	}
	delete(r.staying, pod)
	return nil
}

const (
	// releaseTimeout bounds a call for a claim, and the calls that delete one.
	releaseTimeout = 10 * time.Second
	// askAgain is the pause after a call whose outcome is unknown.
	askAgain = 500 * time.Millisecond
)

// release takes back the allocation of a claim, if no pod uses it.
func (r *Releaser) release(ctx context.Context, key types.NamespacedName) error {
	claim, err := r.claims.Get(key.Namespace, key.Name)
	switch {
	case errors.Is(err, assumecache.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("reading claim: %w", err)
	case claim.Status.Allocation == nil || claim.DeletionTimestamp != nil || !r.users.Withdraw(ctx, key, consumersOf(claim)):
		return nil
	}
	defer r.users.Withdrawn(ctx, key)
	now, err := r.deallocate(ctx, claim)
	if now != nil {
		// A cache that is newer than this, or has no such claim, will do as well.
		_ = r.claims.AssumeClaimAfterAPICall(now)
	}
	return err
}

// deallocate writes that a claim has no allocation, and returns the claim as it is then; nil where it is gone. Where the outcome of
// the call is unknown, it repeats the call: pods must not proceed with what they may have lost.
func (r *Releaser) deallocate(ctx context.Context, claim *resourceapi.ResourceClaim) (now *resourceapi.ResourceClaim, err error) {
	free := claim.DeepCopy()
	free.Status = resourceapi.ResourceClaimStatus{}
	claims := r.client.ResourceClaims(claim.Namespace)
	err = r.insist(ctx, klog.KObj(claim), func(ctx context.Context) error {
		now, err = claims.UpdateStatus(ctx, free, metav1.UpdateOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case apierrors.IsConflict(err):
		// It has changed, or an earlier call was carried out.
		var read error
		err := r.insist(ctx, klog.KObj(claim), func(ctx context.Context) error {
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
	klog.FromContext(ctx).V(2).Info("Took back the allocation of a ResourceClaim that no pod uses", "resourceclaim", klog.KObj(claim))
	return now, nil
}

// insist repeats a call until the API server has answered it.
func (r *Releaser) insist(ctx context.Context, of klog.ObjectRef, call func(ctx context.Context) error) (err error) {
	stopped := wait.PollUntilContextCancel(ctx, askAgain, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
		defer cancel()
		err = call(ctx)
		done := err == nil || answered(err)
		if !done {
			klog.FromContext(ctx).Error(err, "Unknown whether the allocation of a ResourceClaim was taken back; trying again", "resourceclaim", of)
		}
		return done, nil
	})
	return cmp.Or(err, stopped)
}

// answered reports whether an error is a final answer of the API server: the call has changed nothing.
func answered(err error) bool {
	switch reason := apierrors.ReasonForError(err); reason {
	case metav1.StatusReasonUnknown, metav1.StatusReasonInternalError, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout,
		metav1.StatusReasonServiceUnavailable, metav1.StatusReasonTooManyRequests:
		return false
	default:
		return true
	}
}

// drop deletes a claim that was made for a pod, if the pod does not use it. If the claim has changed meanwhile, the API server
// refuses, and the claim is tried again. Where the claim still exists after that, the pod waits until it is gone: kube-scheduler
// refuses the pod until then.
func (r *Releaser) drop(ctx context.Context, claim *resourceapi.ResourceClaim, pod types.UID) error {
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	if !r.users.Withdraw(ctx, key, append(consumersOf(claim), pod)) {
		return nil
	}
	err := r.remove(ctx, claim)
	if errors.Is(err, errStays) {
		r.stay(pod, claim)
		klog.FromContext(ctx).Error(err, "A pod waits until a ResourceClaim for its extended resources is gone", "resourceclaim", key)
		return err
	}
	r.users.Withdrawn(ctx, key)
	return err
}

// remove deletes a claim, and returns when kube-scheduler sees it no more.
func (r *Releaser) remove(ctx context.Context, claim *resourceapi.ResourceClaim) error {
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if i := slices.Index(claim.Finalizers, resourceapi.Finalizer); i >= 0 { // it waits for the end of the pod
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
	klog.FromContext(ctx).V(2).Info("Deleted a ResourceClaim for extended resources of a pod that was not bound", "resourceclaim", key)
	return r.awaitGone(ctx, key, claim.UID)
}

const (
	// seenWithin is how long kube-scheduler may take to see that a claim is gone.
	seenWithin = 2 * time.Second
	seenPoll   = 5 * time.Millisecond
)

// awaitGone returns when kube-scheduler sees no more of a claim that was deleted: as long as it does, it refuses the pod that the
// claim was made for. It fails where that takes long: the claim has a finalizer, say.
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
