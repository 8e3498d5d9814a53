package fairshare

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/watches"
	"github.com/lockstep-sh/lockstep/test/await"
)

// watching is the handle of a profile, as far as it takes to watch.
type watching struct {
	fwk.Handle
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
}

func (h watching) ClientSet() kubernetes.Interface                        { return h.client }
func (h watching) KubeConfig() *rest.Config                               { return &rest.Config{} }
func (h watching) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// TestWatches: who begins to lead can wait for all that makes the shares, and what counts as
// taken in is in the book.
func TestWatches(t *testing.T) {
	d := newDispatcher(t, 4, 1)
	d.watches = watches.New()
	runs := pod("runs", "", 1, "all")
	runs.ResourceVersion = "7"
	client := fake.NewClientset(runs)
	h := watching{client: client, factory: informers.NewSharedInformerFactory(client, 0)}
	if err := d.watch(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	var names []string
	var pods *watches.Watch
	for _, watch := range d.watches.All() {
		names = append(names, watch.Name())
		if watch.Name() == "pods in the shares of queues" {
			pods = watch
		}
		if resource, _, own := watch.Own(); own && resource != v1alpha1.QueueResource {
			t.Errorf("its own informer watches %s", resource)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"device classes in the shares of queues", "namespaces in the shares of queues", "nodes in the shares of queues", "pods in the shares of queues", "queues", "resource slices in the shares of queues"}, names); diff != "" {
		t.Fatalf("watches (-want +got):\n%s", diff)
	}
	h.factory.Start(t.Context().Done())
	await.NoError(t, "the pod is taken in", func() error {
		if handled := pods.Handled(); handled[string(runs.UID)] != "7" {
			return fmt.Errorf("taken in: %v", handled)
		}
		return nil
	})
	usage, _ := d.running(runs.UID)
	if diff := cmp.Diff(gpus(1), usage.Amount); diff != "" {
		t.Errorf("what counts of a pod that was taken in (-want +got):\n%s", diff)
	}
}
