package claimrelease

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// known is the tracker of a scheduler that knows one claim.
type known struct {
	fwk.ResourceClaimTracker
	claim *resourceapi.ResourceClaim
}

func (k known) Get(namespace, name string) (*resourceapi.ResourceClaim, error) {
	if k.claim == nil || k.claim.Namespace != namespace || k.claim.Name != name {
		return nil, assumecache.ErrNotFound
	}
	return k.claim, nil
}

func (k known) AssumeClaimAfterAPICall(*resourceapi.ResourceClaim) error { return nil }

// users return what the test sets, and note the calls.
type users struct {
	may   func(claim types.NamespacedName, reservedFor []types.UID) bool
	stood map[types.NamespacedName]bool
}

func (u users) Withdraw(_ context.Context, claim types.NamespacedName, reservedFor []types.UID) bool {
	may := u.may(claim, reservedFor)
	if may {
		u.stood[claim] = true
	}
	return may
}

func (u users) Withdrawn(_ context.Context, claim types.NamespacedName) { delete(u.stood, claim) }

// TestRelease: a claim's allocation is taken back if it has one that no pod uses.
func TestRelease(t *testing.T) {
	held := dra.Held(dra.Claim("c", 1), "n", 0, "u")
	dying := held.DeepCopy()
	dying.DeletionTimestamp = new(metav1.Now())
	for sentence, c := range map[string]struct {
		claim    *resourceapi.ResourceClaim
		unused   bool
		released bool
	}{
		"nobody uses it":       {held, true, true},
		"somebody uses it":     {held, false, false},
		"it is not allocated":  {dra.Claim("c", 1), true, false},
		"it is deleted anyway": {dying, true, false},
		"it is gone":           {nil, true, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			client := fake.NewClientset(held.DeepCopy())
			var asked []types.UID
			informer := informers.NewSharedInformerFactory(client, 0).Resource().V1().ResourceClaims().Informer()
			asking := users{stood: map[types.NamespacedName]bool{}, may: func(_ types.NamespacedName, reservedFor []types.UID) bool {
				asked = reservedFor
				return c.unused
			}}
			r, err := NewReleaser(known{claim: c.claim}, informer, client.ResourceV1(), asking)
			must.Succeed(t, err)
			key := types.NamespacedName{Namespace: "ns", Name: "c"}
			must.Succeed(t, r.release(t.Context(), key))
			now, err := client.ResourceV1().ResourceClaims("ns").Get(t.Context(), "c", metav1.GetOptions{})
			must.Succeed(t, err)
			if released := now.Status.Allocation == nil && len(now.Status.ReservedFor) == 0; released != c.released {
				t.Errorf("released: %t, want %t", released, c.released)
			}
			if c.claim == held && !slices.Equal(asked, []types.UID{"u"}) {
				t.Errorf("asked whether %v use it, want u", asked)
			}
			if len(asking.stood) > 0 {
				t.Error("pods wait for what becomes of it, after it is known")
			}
		})
	}
	t.Run("none is looked at without a scheduler of devices", func(t *testing.T) {
		var none *Releaser
		none.Enqueue(dra.Pod("p", "c"))
	})
}

// TestReleaseInDoubt: where it is unknown whether the allocation was taken back, pods wait until it is known.
func TestReleaseInDoubt(t *testing.T) {
	held := dra.Held(dra.Claim("c", 1), "n", 0, "u")
	free := held.DeepCopy()
	free.Status = resourceapi.ResourceClaimStatus{}
	conflict := apierrors.NewConflict(resourceapi.Resource("resourceclaims"), "c", errors.New("it has changed"))
	for sentence, c := range map[string]struct {
		answers []error
		stored  *resourceapi.ResourceClaim
		calls   int
		failed  bool
	}{
		"the answer is lost, and the call was not carried out":      {[]error{io.ErrUnexpectedEOF, nil}, held, 2, false},
		"the answer is lost, and the call was carried out":          {[]error{apierrors.NewInternalError(io.EOF), conflict}, free, 2, false},
		"it is refused, since the claim has changed":                {[]error{conflict}, held, 1, true},
		"it is refused, since the scheduler may not do such things": {[]error{apierrors.NewForbidden(resourceapi.Resource("resourceclaims"), "c", nil)}, held, 1, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			client := fake.NewClientset(c.stored.DeepCopy())
			informer := informers.NewSharedInformerFactory(client, 0).Resource().V1().ResourceClaims().Informer()
			asking := users{stood: map[types.NamespacedName]bool{}, may: func(types.NamespacedName, []types.UID) bool { return true }}
			calls := 0
			client.PrependReactor("update", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
				if len(asking.stood) == 0 {
					t.Error("pods go on while the call is made")
				}
				calls++
				err := c.answers[calls-1]
				return err != nil, nil, err
			})
			r, err := NewReleaser(known{claim: held}, informer, client.ResourceV1(), asking)
			must.Succeed(t, err)
			if err := r.release(t.Context(), types.NamespacedName{Namespace: "ns", Name: "c"}); (err != nil) != c.failed {
				t.Errorf("failed with %v, want so: %t", err, c.failed)
			}
			if calls != c.calls || len(asking.stood) > 0 {
				t.Errorf("%d calls, want %d; pods that wait after it: %v", calls, c.calls, asking.stood)
			}
		})
	}
}

// TestDropMade: what was made for the extended resources of a pod is deleted if the pod does not use it, and nothing
// else.
func TestDropMade(t *testing.T) {
	made := dra.Held(dra.Claim("p-extended-resources-1", 1), "n", 0, "p")
	made.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	made.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "p", Controller: new(true)}}
	made.Finalizers = []string{resourceapi.Finalizer}
	templated := dra.Held(dra.Claim("p-gpu", 1), "n", 1, "p")
	templated.OwnerReferences = made.OwnerReferences
	ofAnother := made.DeepCopy()
	ofAnother.Name, ofAnother.UID, ofAnother.OwnerReferences[0].UID = "q-extended-resources-1", "other", "q"
	for sentence, c := range map[string]struct {
		uses bool
		left []string
	}{
		"the pod waits":          {false, []string{"p-gpu", "q-extended-resources-1"}},
		"the pod is being bound": {true, []string{"p-extended-resources-1", "p-gpu", "q-extended-resources-1"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			client := fake.NewClientset(made.DeepCopy(), templated.DeepCopy(), ofAnother.DeepCopy())
			factory := informers.NewSharedInformerFactory(client, 0)
			informer := factory.Resource().V1().ResourceClaims().Informer()
			asking := users{stood: map[types.NamespacedName]bool{}, may: func(claim types.NamespacedName, users []types.UID) bool {
				if claim.Name != made.Name || !slices.Contains(users, "p") {
					t.Errorf("asked whether %v use %s, want p and %s", users, claim, made.Name)
				}
				return !c.uses
			}}
			r, err := NewReleaser(known{}, informer, client.ResourceV1(), asking)
			if err == nil {
				_, err = NewReleaser(known{}, informer, client.ResourceV1(), asking) // another profile
			}
			must.Succeed(t, err)
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			pod := st.MakePod().Namespace("ns").Name("p").UID("p").Req(map[v1.ResourceName]string{dra.Backed: "1"}).Obj()
			r.Enqueue(pod, dra.Pod("r"))
			if r.queue.Len() != 1 {
				t.Fatalf("%d are to be looked at, want that of the pod with an extended resource", r.queue.Len())
			}
			at, _ := r.queue.Get()
			must.Succeed(t, r.process(t.Context(), at))
			list, err := client.ResourceV1().ResourceClaims("ns").List(t.Context(), metav1.ListOptions{})
			must.Succeed(t, err)
			var left []string
			for i := range list.Items {
				left = append(left, list.Items[i].Name)
			}
			slices.Sort(left)
			if !slices.Equal(left, c.left) {
				t.Errorf("left: %v, want %v", left, c.left)
			}
		})
	}
}

// lingering is the tracker of a scheduler that sees a claim of this UID until gone is set.
type lingering struct {
	known
	gone atomic.Bool
}

func (l *lingering) Get(namespace, name string) (*resourceapi.ResourceClaim, error) {
	if l.gone.Load() {
		return nil, assumecache.ErrNotFound
	}
	return l.known.Get(namespace, name)
}

// TestDropIsSeen: pods wait until the scheduler sees that the claim is gone, however long that takes.
func TestDropIsSeen(t *testing.T) {
	made := dra.Held(dra.Claim("c", 1), "n", 0, "p")
	another := made.DeepCopy()
	another.UID = "another"
	for sentence, c := range map[string]struct {
		sees   *resourceapi.ResourceClaim
		goes   bool
		failed bool
	}{
		"it goes after a while":         {sees: made, goes: true},
		"it stays":                      {sees: made, failed: true},
		"it has made way for a new one": {sees: another},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(made.DeepCopy())
				informer := informers.NewSharedInformerFactory(client, 0).Resource().V1().ResourceClaims().Informer()
				asking := users{stood: map[types.NamespacedName]bool{}, may: func(types.NamespacedName, []types.UID) bool { return true }}
				tracker := &lingering{known: known{claim: c.sees}}
				r, err := NewReleaser(tracker, informer, client.ResourceV1(), asking)
				must.Succeed(t, err)
				defer r.queue.ShutDown()
				if c.goes {
					time.AfterFunc(time.Second, func() {
						if len(asking.stood) == 0 {
							t.Error("pods go on while the scheduler sees the claim")
						}
						tracker.gone.Store(true)
					})
				}
				if err := r.dropMadeClaim(t.Context(), made, "p"); (err != nil) != c.failed {
					t.Errorf("failed with %v, want so: %t", err, c.failed)
				}
				if waits := len(asking.stood) > 0; waits != c.failed {
					t.Errorf("pods wait for what becomes of it: %t, want %t", waits, c.failed)
				}
				tracker.gone.Store(true)
				if err := r.process(t.Context(), workItem{pod: "p"}); err != nil || len(asking.stood) > 0 {
					t.Errorf("once it is gone pods wait for %d claims, %v", len(asking.stood), err)
				}
			})
		})
	}
}
