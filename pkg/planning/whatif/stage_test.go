package whatif

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientcache "k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const (
	gpu  = v1.ResourceName("nvidia.com/gpu")
	zone = v1.LabelTopologyZone
	host = v1.LabelHostname
)

type amounts = map[v1.ResourceName]string

// stage is kube-scheduler's own framework with all default plugins, over a
// snapshot that a test sets.
type stage struct {
	fw       framework.Framework
	queue    queue.SchedulingQueue
	known    clientcache.Indexer // pods, as the informer has them
	snapshot *cache.Snapshot
	nodes    []*v1.Node
}

func newStage(t testing.TB, objects ...runtime.Object) *stage {
	t.Helper()
	sched := idle.New(t, idle.Options{
		Objects: append(objects, claim("shared", v1.ReadWriteMany), volume("shared"), claim("single", v1.ReadWriteOncePod), volume("single"), &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "served"}, Spec: v1.ServiceSpec{Selector: map[string]string{"kind": "served"}},
		}),
		Configure: configure,
	})
	sched.Start()
	s := &stage{snapshot: sched.Snapshot, fw: sched.Framework, queue: sched.SchedulingQueue}
	s.known = sched.Informers.Core().V1().Pods().Informer().GetIndexer()
	for i := range 6 {
		s.nodes = append(s.nodes, st.MakeNode().Name(fmt.Sprint("n", i)).Label(host, fmt.Sprint("n", i)).Label(zone, fmt.Sprint("z", i/2)).
			Capacity(amounts{gpu: "4", v1.ResourceCPU: "8", v1.ResourceMemory: "16Gi", v1.ResourcePods: "6"}).Obj())
	}
	return s
}

// configure spreads pods of a service over zones also where they do not ask for it.
func configure(p *schedconfig.KubeSchedulerProfile) {
	for i, entry := range p.PluginConfig {
		if args, ok := entry.Args.(*schedconfig.PodTopologySpreadArgs); ok {
			args.DefaultingType = schedconfig.ListDefaulting
			args.DefaultConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: zone, WhenUnsatisfiable: v1.DoNotSchedule}}
			p.PluginConfig[i].Args = args
		}
	}
}

// claim returns a PersistentVolumeClaim that is bound to the volume of its name.
func claim(name string, mode v1.PersistentVolumeAccessMode) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid", Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec:       v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{mode}, VolumeName: name},
		Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
	}
}

func volume(name string) *v1.PersistentVolume {
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{Namespace: "ns", Name: name, UID: "uid"}},
		Status:     v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
	}
}

// set makes the snapshot one of these pods.
func (s *stage) set(pods ...*v1.Pod) { *s.snapshot = *cache.NewSnapshot(pods, s.nodes) }

// begin opens a transaction, and returns the nodes by name.
func (s *stage) begin(t testing.TB, interdependent bool) (*Transaction, map[string]int) {
	t.Helper()
	tx, err := Begin(s.fw, HooksOf(extensionpoints.New(), s.fw), interdependent)
	must.Succeed(t, err)
	at := map[string]int{}
	for i := range tx.Len() {
		at[tx.Node(i).Node().Name] = i
	}
	return tx, at
}

// pod returns a pod of some kind; all kinds carry the label of their name.
func pod(kind string, n int) *v1.Pod {
	name := fmt.Sprint(kind, "-", n)
	p := st.MakePod().Namespace("ns").Name(name).UID(name).Label("kind", kind)
	switch kind {
	case "gpu":
		p.Req(amounts{gpu: "2", v1.ResourceCPU: "1"})
	case "plain":
		p.Req(amounts{v1.ResourceCPU: "3", v1.ResourceMemory: "1Gi"})
	case "nothing":
		p.Container("image")
	case "port":
		p.HostPort(8080)
	case "shared":
		p.PVC("shared").Req(amounts{v1.ResourceCPU: "1"})
	case "single":
		p.PVC("single") // one pod in the whole cluster may use it
	case "apart":
		p.PodAntiAffinityIn("kind", host, []string{"apart"}, st.PodAntiAffinityWithRequiredReq)
	case "zones-apart":
		p.PodAntiAffinityIn("kind", zone, []string{"zones-apart", "apart"}, st.PodAntiAffinityWithRequiredReq)
	case "gpu-apart":
		p.PodAntiAffinityIn("kind", host, []string{"gpu"}, st.PodAntiAffinityWithRequiredReq)
	case "near":
		p.PodAffinityIn("kind", zone, []string{"near", "gpu"}, st.PodAffinityWithRequiredReq)
	case "rather":
		p.PodAffinityIn("kind", zone, []string{"gpu"}, st.PodAffinityWithPreferredReq)
	case "spread":
		p.SpreadConstraint(1, zone, v1.DoNotSchedule, st.MakeLabelSelector().Label("kind", "spread").Obj(), nil, nil, nil, nil)
	}
	return p.Obj()
}

// kinds that a node judges by itself, and those that care about other pods.
var (
	independent    = []string{"gpu", "plain", "nothing", "port", "shared", "served"}
	interdependent = append([]string{"apart", "zones-apart", "near", "rather", "spread", "single"}, independent...)
)

// view prepares a pod; it fails the test if a plugin breaks, and returns nil if one
// refuses.
func view(t testing.TB, tx *Transaction, p *v1.Pod) *View {
	t.Helper()
	v, status := tx.View(t.Context(), p)
	if status.Code() == fwk.Error {
		t.Fatalf("preparing %s: %v", p.Name, status)
	}
	return v
}

// fits returns on which nodes a pod fits; a pod that is refused before fits on none.
func fits(t testing.TB, tx *Transaction, v *View) []string {
	t.Helper()
	var names []string
	for i := 0; v != nil && i < tx.Len(); i++ {
		switch status := tx.Fits(t.Context(), v, i); {
		case status.Code() == fwk.Error:
			t.Fatalf("filtering %s: %v", v.Pod.Name, status)
		case status.IsSuccess() && v.Allows(tx.Node(i)):
			names = append(names, tx.Node(i).Node().Name)
		}
	}
	slices.Sort(names)
	return names
}

// nodeFacts is all of a NodeInfo that a plugin can read.
type nodeFacts struct {
	Pods, Affinity, AntiAffinity, WideAntiAffinity []string
	Requested, NonZero                             map[v1.ResourceName]int64
	Ports                                          []string
	Claims                                         map[string]int
	Generation                                     int64
}

func factsOf(info fwk.NodeInfo) nodeFacts {
	named := func(pods []fwk.PodInfo) []string {
		var list []string
		for _, p := range pods {
			list = append(list, p.GetPod().Name+" on "+p.GetPod().Spec.NodeName)
		}
		return list
	}
	amounts := func(r fwk.Resource) map[v1.ResourceName]int64 {
		all := map[v1.ResourceName]int64{v1.ResourceCPU: r.GetMilliCPU(), v1.ResourceMemory: r.GetMemory(), v1.ResourceEphemeralStorage: r.GetEphemeralStorage()}
		for name, amount := range r.GetScalarResources() {
			if amount != 0 {
				all[name] = amount
			}
		}
		return all
	}
	f := nodeFacts{
		Pods: named(info.GetPods()), Affinity: named(info.GetPodsWithAffinity()), AntiAffinity: named(info.GetPodsWithRequiredAntiAffinity()),
		WideAntiAffinity: named(info.GetPodsWithRequiredNonHostScopedAntiAffinity()),
		Requested:        amounts(info.GetRequested()), NonZero: amounts(info.GetNonZeroRequested()), Claims: map[string]int{}, Generation: info.GetGeneration(),
	}
	for ip, ports := range info.GetUsedPorts() {
		for port := range ports {
			f.Ports = append(f.Ports, fmt.Sprint(ip, port))
		}
	}
	slices.Sort(f.Ports)
	for key, n := range info.GetPVCRefCounts() {
		f.Claims[key] = n
	}
	return f
}

// snapshotFacts is all of a snapshot that a plugin can read.
type snapshotFacts struct {
	Nodes                                    map[string]nodeFacts
	Affinity, AntiAffinity, WideAntiAffinity []string
	Claims                                   map[string]bool
}

func (s *stage) facts(t testing.TB) snapshotFacts {
	t.Helper()
	f := snapshotFacts{Nodes: map[string]nodeFacts{}, Claims: map[string]bool{}}
	names := func(list []fwk.NodeInfo, err error) []string {
		must.Succeed(t, err)
		var names []string
		for _, info := range list {
			names = append(names, info.Node().Name)
			f.Nodes[info.Node().Name] = factsOf(info)
		}
		return names
	}
	names(s.snapshot.List())
	f.Affinity = names(s.snapshot.HavePodsWithAffinityList())
	f.AntiAffinity = names(s.snapshot.HavePodsWithRequiredAntiAffinityList())
	f.WideAntiAffinity = names(s.snapshot.HavePodsWithRequiredNonHostScopedAntiAffinityList())
	for _, name := range []string{"ns/shared", "ns/single"} {
		f.Claims[name] = s.snapshot.IsPVCUsedByPods(name)
	}
	return f
}

func (s *stage) mustBe(t testing.TB, when string, want snapshotFacts) {
	t.Helper()
	if diff := gocmp.Diff(want, s.facts(t)); diff != "" {
		t.Fatalf("the snapshot %s (-want +got):\n%s", when, diff)
	}
}

// byName sorts what has no order of its own.
func byName(list []string) []string {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(a, b) })
	return list
}

// outcome is what a transaction came to.
type outcome struct {
	// Evict are the pods that were removed and not put back.
	Evict []*v1.Pod
	// Place is the node of each pod that was added and not taken back.
	Place map[types.UID]string
}

// commit discards the transaction, and returns what it came to.
func (t *Transaction) commit(ctx context.Context) (outcome, error) {
	gone, out := map[types.UID]*v1.Pod{}, outcome{Place: map[types.UID]string{}}
	for _, s := range t.log {
		pod := s.info.GetPod()
		_, back := gone[pod.UID]
		switch {
		case s.removed:
			gone[pod.UID] = pod
		case back:
			delete(gone, pod.UID)
		default:
			out.Place[pod.UID] = t.nodes[s.node].Node().Name
		}
	}
	out.Evict = slices.SortedFunc(maps.Values(gone), func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return out, t.Discard(ctx)
}
