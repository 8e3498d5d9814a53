package fairshare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// watching is the handle of a profile, as far as it is needed to watch.
type watching struct {
	fwk.Handle
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
}

func (h watching) ClientSet() kubernetes.Interface                        { return h.client }
func (h watching) KubeConfig() *rest.Config                               { return &rest.Config{} }
func (h watching) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// TestWatches: a process that begins to lead can wait for everything that makes the shares, and what counts as
// taken in is in the book.
func TestWatches(t *testing.T) {
	d := newDispatcher(t, 4, 1)
	d.watches = watches.New()
	runs := pod("runs", "", 1, "all")
	runs.ResourceVersion = "7"
	client := fake.NewClientset(runs)
	h := watching{client: client, factory: informers.NewSharedInformerFactory(client, 0)}
	must.Succeed(t, d.watch(t.Context(), h))
	var names []string
	var pods *watches.Watch
	for _, watch := range d.watches.All() {
		names = append(names, watch.Name())
		if watch.Name() == "pods" {
			pods = watch
		}
		if resource, _, own := watch.Own(); own && resource != v1alpha1.QueueResource {
			t.Errorf("its own informer watches %s", resource)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"device classes in the shares of queues", "namespaces in the shares of queues", "nodes in the shares of queues", "pods", "queues", "resource claim templates in the shares of queues",
		"resource claims in the shares of queues", "resource slices in the shares of queues"}, names); diff != "" {
		t.Fatalf("watches (-want +got):\n%s", diff)
	}
	h.factory.Start(t.Context().Done())
	await.NoError(t, "the pod is taken in", func() error {
		if handled := pods.Handled(); handled[string(runs.UID)] != "7" {
			return fmt.Errorf("taken in: %v", handled)
		}
		return nil
	})
	usage, _ := d.book.Counted(string(runs.UID))
	if diff := cmp.Diff(gpus(1), usage.Amount); diff != "" {
		t.Errorf("what counts of a pod that was taken in (-want +got):\n%s", diff)
	}
}

// TestOpen: a process that begins to lead can wait until jobs may have their turns; none has before, and the wait ends
// where queues are not read.
func TestOpen(t *testing.T) {
	stage := func(pods ...*v1.Pod) (d *Dispatcher, read *atomic.Bool) {
		d, read = newDispatcher(t, 4, 4), &atomic.Bool{}
		d.opened = false
		for _, one := range pods {
			d.seeAll(one)
			d.offer(one)
		}
		go d.open(t.Context(), read.Load)
		return d, read
	}
	soon := func(within time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		t.Cleanup(cancel)
		return ctx
	}
	t.Run("pods wait", func(t *testing.T) {
		d, read := stage(pod("one", "", 1, ""), pod("two", "", 1, ""))
		read.Store(true)
		time.Sleep(150 * time.Millisecond)
		if called := d.calledNow(); called != "" {
			t.Errorf("%s have their turn before it leads", called)
		}
		if opened, called := d.Open(soon(10*time.Second)), d.calledNow(); !opened || called != "one two" {
			t.Errorf("opened %v, %q were called", opened, called)
		}
	})
	t.Run("no pod waits", func(t *testing.T) {
		d, read := stage()
		read.Store(true)
		if !d.Open(soon(10 * time.Second)) {
			t.Error("it waits for turns of nobody")
		}
	})
	t.Run("queues are read later", func(t *testing.T) {
		d, read := stage(pod("one", "", 1, ""))
		if d.Open(soon(50*time.Millisecond)) || d.calledNow() != "" {
			t.Error("it has opened, and queues are not read")
		}
		read.Store(true)
		await.NoError(t, "the pod is called", func() error {
			if d.calledNow() == "" {
				return errors.New("not yet")
			}
			return nil
		})
	})
	t.Run("no profile has queues", func(t *testing.T) {
		d, _ := stage()
		clear(d.served)
		if !d.Open(soon(time.Minute)) {
			t.Error("it waits for what nobody has")
		}
	})
}

// TestImpossibleForAMoment: a pod that asks for what no pod can have while it has a node, or gets one, has it once it
// asks for less.
func TestImpossibleForAMoment(t *testing.T) {
	for sentence, early := range map[string]bool{"when it gets a node": true, "later": false} {
		d := newDispatcher(t, 8, 9)
		seen := func(version, amount string) {
			p := pod("p", "", 1, "")
			p.ResourceVersion = version
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{gpu: resource.MustParse(amount)}
			d.seeAll(p)
		}
		reserve := func() { d.reserve(pod("p", "", 1, "all"), "all") }
		seen("1", "1")
		if !early {
			reserve()
		}
		seen("2", "1e30")
		if early {
			reserve()
		}
		seen("3", "2")
		if usage, _ := d.book.Counted("p"); !usage.Runs || usage.Amount[gpu] != 2 {
			t.Errorf("%s: it counts as %v", sentence, usage)
		}
		d.unreserve(silent, pod("p", "", 1, "all"))
		if usage, _ := d.book.Counted("p"); usage.Runs || len(d.assumed) > 0 {
			t.Errorf("%s: it has given its node back, and counts as %v", sentence, usage)
		}
	}
}
