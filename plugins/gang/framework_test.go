package gang

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/cacheevents"
	"github.com/lockstep-sh/lockstep/plugins/extension"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/order"
	"github.com/lockstep-sh/lockstep/plugins/roster"
	"github.com/lockstep-sh/lockstep/plugins/watches"
)

const (
	testProfile = "lockstep-scheduler"
	gpu         = v1.ResourceName("nvidia.com/gpu")
	rack        = "topology.example.com/rack"
)

// stage is the plugin inside a real scheduler: all default plugins, the real cache, snapshot and
// queue. Nothing runs; the API server is a fake without objects.
type stage struct {
	*Gang
	ctx       context.Context
	scheduler *scheduler.Scheduler
	snapshot  *cache.Snapshot
}

// newStage makes a stage with these nodes, and pods on them.
func newStage(tb testing.TB, nodes []*v1.Node, pods ...*v1.Pod) *stage {
	tb.Helper()
	var silent klog.Logger
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), silent))
	tb.Cleanup(cancel)
	s := &stage{ctx: ctx, snapshot: cache.NewEmptySnapshot()}
	ledger := holds.New()
	capture := func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := New(Shared{Holds: ledger, Order: order.New(), Plugins: extension.New(), Roster: roster.New(), Events: cacheevents.New(), Watches: watches.New(), Leading: closed()})(ctx, args, handle)
		s.Gang, _ = plugin.(*Gang)
		return plugin, err
	}
	held := func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return heldCapacity{ledger}, nil
	}
	client := fake.NewClientset()
	var err error
	s.scheduler, err = scheduler.New(ctx, client, informers.NewSharedInformerFactory(client, 0), nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithKubeConfig(&rest.Config{}),
		scheduler.WithProfiles(profile(tb)),
		scheduler.WithNodeInfoSnapshot(s.snapshot),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{Name: capture, heldCapacity{}.Name(): held}))
	if err != nil {
		tb.Fatal(err)
	}
	nominator := s.holds.Nominator(s.scheduler.SchedulingQueue, func(*v1.Pod) bool { return false })
	s.scheduler.Profiles[testProfile].SetPodNominator(nominator)
	for _, node := range nodes {
		s.scheduler.Cache.AddNode(klog.FromContext(ctx), node)
	}
	for _, pod := range pods {
		if err := s.scheduler.Cache.AddPod(klog.FromContext(ctx), pod); err != nil {
			tb.Fatal(err)
		}
	}
	if err := s.scheduler.Cache.UpdateSnapshot(klog.FromContext(ctx), s.snapshot); err != nil {
		tb.Fatal(err)
	}
	return s
}

// profile is kube-scheduler's default profile with the plugin in it. The order of the queue and the
// binder stay kube-scheduler's: no plugin imports another.
func profile(tb testing.TB) schedconfig.KubeSchedulerProfile {
	tb.Helper()
	defaults, err := latest.Default()
	if err != nil {
		tb.Fatal(err)
	}
	p := defaults.Profiles[0]
	p.SchedulerName = testProfile
	only := schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: Name}}}
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: Name}, schedconfig.Plugin{Name: heldCapacity{}.Name()})
	p.Plugins.PreFilter, p.Plugins.PostFilter, p.Plugins.Bind = only, only, only
	p.Plugins.Score = schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: Name, Weight: 20}}}
	p.PluginConfig = append(p.PluginConfig, schedconfig.PluginConfig{Name: Name, Args: &config.GangArgs{
		DefaultWaitTime: metav1.Duration{Duration: 10 * time.Minute},
		InitialBackoff:  metav1.Duration{Duration: 250 * time.Millisecond},
		MaxBackoff:      metav1.Duration{Duration: time.Second},
		ExplanationQPS:  10,
	}})
	return p
}

// heldCapacity stands for the plugin of that name, which is another one: it goes by what Gang has
// granted.
type heldCapacity struct{ holds *holds.Holds }

func (heldCapacity) Name() string { return "HeldCapacity" }

func (pl heldCapacity) Filter(_ context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	return pl.holds.Check(holds.DemandOf(&framework.PodInfo{Pod: pod}), info, holds.Granted(state, pod)...)
}

// podInfo is the PodInfo of a pod.
func podInfo(tb testing.TB, pod *v1.Pod) *framework.PodInfo {
	tb.Helper()
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

// makeNodes makes nodes of 8 GPUs, spread over racks.
func makeNodes(count, racks int) []*v1.Node {
	nodes := make([]*v1.Node, count)
	for i := range nodes {
		nodes[i] = st.MakeNode().Name(fmt.Sprintf("node-%04d", i)).
			Label(v1.LabelHostname, fmt.Sprintf("node-%04d", i)).
			Label(v1.LabelTopologyZone, "z"+strconv.Itoa(i*4/count)).
			Label(rack, "r"+strconv.Itoa(i*racks/count)).
			Capacity(map[v1.ResourceName]string{gpu: "8", v1.ResourceCPU: "64", v1.ResourceMemory: "512Gi", v1.ResourcePods: "110"}).Obj()
	}
	return nodes
}

// makeMembers makes members of gang default/name, each with gpus GPUs; change, if not nil, is applied
// to member i.
func makeMembers(name string, count, gpus int, change func(i int, pod *st.PodWrapper)) []*v1.Pod {
	pods := make([]*v1.Pod, count)
	for i := range pods {
		pod := st.MakePod().Namespace("default").Name(fmt.Sprintf("%s-%04d", name, i)).UID(fmt.Sprintf("%s-%04d", name, i)).
			SchedulerName(testProfile).Label("app", name).
			Annotation(v1alpha1.GangNameAnnotation, name).
			Annotation(v1alpha1.MinAvailableAnnotation, strconv.Itoa(count)).
			Req(map[v1.ResourceName]string{gpu: strconv.Itoa(gpus), v1.ResourceCPU: "2", v1.ResourceMemory: "8Gi"})
		if change != nil {
			change(i, pod)
		}
		pods[i] = pod.Obj()
	}
	return pods
}

// fill makes a pod for each node that takes all of its GPUs but left.
func fill(nodes []*v1.Node, left int) []*v1.Pod {
	pods := make([]*v1.Pod, len(nodes))
	for i, node := range nodes {
		pods[i] = st.MakePod().Namespace("other").Name("on-" + node.Name).UID("on-" + node.Name).Node(node.Name).
			Req(map[v1.ResourceName]string{gpu: strconv.Itoa(8 - left)}).Obj()
	}
	return pods
}

// closed is a channel that is.
func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
