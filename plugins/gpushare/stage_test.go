package gpushare

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource/gpucards"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// stage is the plugin inside a real scheduler: all default plugins, the real cache, snapshot
// and queue. Its queue does not run; the API server is a fake.
type stage struct {
	*GPUShare
	ctx       context.Context
	scheduler *idle.Scheduler
	fw        framework.Framework
	hooks     whatif.Hooks
	client    *fake.Clientset
	snapshot  *cache.Snapshot
	events    chan string
}

// newStage returns a stage with these objects. The pods with a node are on it.
func newStage(t testing.TB, objects ...runtime.Object) *stage {
	t.Helper()
	s := &stage{events: make(chan string, 1000)}
	plugins := extensionpoints.New()
	s.scheduler = idle.New(t, idle.Options{
		Plugins: frameworkruntime.Registry{Name: plugins.Watch(idle.Keep(&s.GPUShare, New(NewLedger(), plugins, watches.New(), binding.Binder{Name: "BoundedBinder"})))}, Objects: objects, Events: s.events,
	})
	s.ctx, s.fw, s.client, s.snapshot = s.scheduler.Context, s.scheduler.Framework, s.scheduler.Client, s.scheduler.Snapshot
	s.hooks = whatif.HooksOf(plugins, s.fw)
	s.scheduler.Start()
	must.Succeed(t, s.scheduler.WaitForHandlersSync(s.ctx))
	s.scheduler.Look(t)
	return s
}

// told returns the events so far.
func (s *stage) told() []string { return await.Drain(s.events) }

// makeNode returns a node of so many cards of 8192 MiB each.
func makeNode(name string, cards int) *v1.Node {
	list := strings.Repeat("8192,", cards)
	n := bareNode(name, 8192*cards)
	n.Annotations = map[string]string{v1alpha1.GPUCardsAnnotation: "[" + list[:len(list)-1] + "]"}
	return n
}

// bareNode returns a node without a description of its cards.
func bareNode(name string, memory int) *v1.Node {
	n := st.MakeNode().Name(name).UID(name).Capacity(map[v1.ResourceName]string{
		v1alpha1.GPUMemoryResource: strconv.Itoa(memory), v1.ResourceCPU: "64", v1.ResourcePods: "110",
	}).Obj()
	return n
}

// makePod returns a pod that requests GPU memory.
func makePod(name string, memory int) *st.PodWrapper {
	return st.MakePod().Namespace("ns").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).Priority(10).
		Req(map[v1.ResourceName]string{v1alpha1.GPUMemoryResource: strconv.Itoa(memory)})
}

// onCard returns a pod that runs on a card of a node.
func onCard(name string, memory int, node, card string) *v1.Pod {
	return makePod(name, memory).Node(node).Priority(0).Condition(v1.PodScheduled, v1.ConditionTrue, "").
		Annotation(v1alpha1.GPUCardAnnotation, card).Annotation(v1alpha1.GPUCardMemoryAnnotation, strconv.Itoa(memory)).Obj()
}

// begin opens a transaction.
func (s *stage) begin(t testing.TB, interdependent bool) *whatif.Transaction {
	t.Helper()
	tx, err := whatif.Begin(s.fw, s.hooks, interdependent)
	must.Succeed(t, err)
	return tx
}

func view(t testing.TB, tx *whatif.Transaction, pod *v1.Pod) *whatif.View {
	t.Helper()
	v, status := tx.View(t.Context(), pod)
	if !status.IsSuccess() {
		t.Fatalf("preparing %s: %v", pod.Name, status)
	}
	return v
}

// on returns a pod on a node of a transaction.
func on(t testing.TB, tx *whatif.Transaction, node int, name string) fwk.PodInfo {
	t.Helper()
	pods := tx.Node(node).GetPods()
	i := slices.IndexFunc(pods, func(p fwk.PodInfo) bool { return p.GetPod().Name == name })
	if i < 0 {
		t.Fatalf("%s is not on node %d", name, node)
	}
	return pods[i]
}

// seen returns the free memory of each card of a node, as a view sees it.
func (s *stage) seen(tx *whatif.Transaction, v *whatif.View, node int) gpucards.Free {
	return s.free(cycleOf(v.State), v.State, tx.Node(node))
}

// now returns the same for the snapshot.
func (s *stage) now(t testing.TB, node string) gpucards.Free {
	t.Helper()
	info, err := s.snapshot.NodeInfos().Get(node)
	must.Succeed(t, err)
	return s.free(&cycle{}, nil, info)
}

func wantFits(t testing.TB, tx *whatif.Transaction, v *whatif.View, node int, want bool, when string) {
	t.Helper()
	status := tx.Fits(t.Context(), v, node)
	if status.Code() == fwk.Error {
		t.Fatal(status.AsError())
	}
	if status.IsSuccess() != want {
		t.Errorf("%s, %s fits is %t (%s), want %t", when, v.Pod.Name, status.IsSuccess(), status.Message(), want)
	}
}

func same[T any](t testing.TB, when string, want, got T) {
	t.Helper()
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// free returns the free memory of each card of a node.
func (s *stage) free(c *cycle, state fwk.CycleState, info fwk.NodeInfo) gpucards.Free {
	sizes := s.cards(info).sizes
	free, _ := gpucards.Lay(sizes, s.pods(c, state, info, sizes))
	return free
}
