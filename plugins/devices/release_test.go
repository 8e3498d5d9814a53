package devices

import (
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
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
			r := NewReleaser(known{claim: c.claim}, client.ResourceV1(), func(_ types.NamespacedName, reservedFor []types.UID) bool {
				asked = reservedFor
				return c.unused
			})
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
