package devicesimulation

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestWatches: the watches of claims and slices return the versions that the scheduler knows.
func TestWatches(t *testing.T) {
	claim, slice := dra.Held(dra.Claim("c", 1), "n", 0, "u"), dra.Slice("n", 1)
	claim.ResourceVersion, slice.UID, slice.ResourceVersion = "7", "slice", "8"
	client := fake.NewClientset(claim, slice)
	factory := informers.NewSharedInformerFactory(client, 0)
	resources := factory.Resource().V1()
	claims := assumecache.NewAssumeCache(klog.Background(), resources.ResourceClaims().Informer(), "ResourceClaim", "", nil)
	slices, err := resourceslicetracker.StartTracker(t.Context(), resourceslicetracker.Options{SliceInformer: resources.ResourceSlices(), KubeClient: client})
	must.Succeed(t, err)
	manager := dynamicresources.NewDRAManager(t.Context(), claims, slices, factory)
	watches := Watches(manager, factory)
	for _, watch := range watches {
		if known := watch.Handled(); len(known) > 0 || watch.Synced() {
			t.Errorf("%s: %v before anything was read", watch.Name(), known)
		}
	}
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	for i, want := range []map[string]string{{string(claim.UID): "7"}, {"slice": "8"}} {
		watch := watches[i]
		await.Until(t, watch.Name()+" are known", func() bool { return maps.Equal(watch.Handled(), want) })
		if stored := watch.Store().List(); len(stored) != 1 || stored[0].(metav1.Object).GetResourceVersion() != want[string(stored[0].(metav1.Object).GetUID())] {
			t.Errorf("%s: stored is %v, want %v", watch.Name(), stored, want)
		}
		if !watch.Synced() {
			t.Errorf("%s have not synced", watch.Name())
		}
	}
	if len(Watches(nil, factory)) > 0 {
		t.Error("without devices there is nothing to wait for")
	}
}
