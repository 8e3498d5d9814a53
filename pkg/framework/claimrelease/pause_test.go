package claimrelease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestTriedAgainSoon: the allocation of a claim is taken back soon after that is possible again, however long it
// failed.
func TestTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := dra.Held(dra.Claim("c", 1), "n", 0, "u")
		client := fake.NewClientset(held.DeepCopy())
		var works atomic.Bool
		done := make(chan struct{}, 1)
		client.PrependReactor("update", "resourceclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !works.Load() {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "resourceclaims"}, "c", errors.New("not now"))
			}
			select {
			case done <- struct{}{}:
			default:
			}
			return false, nil, nil
		})
		informer := informers.NewSharedInformerFactory(client, 0).Resource().V1().ResourceClaims().Informer()
		may := func(types.NamespacedName, []types.UID) bool { return true }
		r, err := NewReleaser(known{claim: held}, informer, client.ResourceV1(), users{stood: map[types.NamespacedName]bool{}, may: may})
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.Run(ctx)
		r.Enqueue(dra.Pod("p", "c"))
		time.Sleep(10 * time.Minute)
		works.Store(true)
		began := time.Now()
		<-done
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it is tried again %v after it could be done", took)
		}
	})
}
