package devices

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/lockstep-sh/lockstep/test/dra"
)

// known is the tracker of a scheduler that knows of one claim.
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

// TestRelease: the allocation of a claim is taken back if it has one that nobody uses.
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
			r, err := NewReleaser(known{claim: c.claim}, informer, client.ResourceV1(), func(_ types.NamespacedName, reservedFor []types.UID) bool {
				asked = reservedFor
				return c.unused
			})
			if err != nil {
				t.Fatal(err)
			}
			key := types.NamespacedName{Namespace: "ns", Name: "c"}
			if err := r.release(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			now, err := client.ResourceV1().ResourceClaims("ns").Get(t.Context(), "c", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if released := now.Status.Allocation == nil && len(now.Status.ReservedFor) == 0; released != c.released {
				t.Errorf("released: %t, want %t", released, c.released)
			}
			if c.claim == held && !slices.Equal(asked, []types.UID{"u"}) {
				t.Errorf("asked whether %v use it, want u", asked)
			}
		})
	}
	t.Run("none is looked at without a scheduler of devices", func(t *testing.T) {
		var none *Releaser
		none.Consider(dra.Pod("p", "c"))
	})
}

// TestDropMade: what was made for the extended resources of a pod is deleted if the pod does not use it, and nothing else.
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
			unused := func(claim types.NamespacedName, users []types.UID) bool {
				if claim.Name != made.Name || !slices.Contains(users, "p") {
					t.Errorf("asked whether %v use %s, want p and %s", users, claim, made.Name)
				}
				return !c.uses
			}
			r, err := NewReleaser(known{}, informer, client.ResourceV1(), unused)
			if err == nil {
				_, err = NewReleaser(known{}, informer, client.ResourceV1(), unused) // another profile
			}
			if err != nil {
				t.Fatal(err)
			}
			factory.Start(t.Context().Done())
			factory.WaitForCacheSync(t.Context().Done())
			pod := st.MakePod().Namespace("ns").Name("p").UID("p").Req(map[v1.ResourceName]string{dra.Backed: "1"}).Obj()
			r.Consider(pod, dra.Pod("r"))
			if r.queue.Len() != 1 {
				t.Fatalf("%d are to be looked at, want that of the pod with an extended resource", r.queue.Len())
			}
			at, _ := r.queue.Get()
			if err := r.look(t.Context(), at); err != nil {
				t.Fatal(err)
			}
			list, err := client.ResourceV1().ResourceClaims("ns").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
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
