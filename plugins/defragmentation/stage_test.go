package defragmentation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	frameworktypes "sigs.k8s.io/descheduler/pkg/framework/types"

	"github.com/lockstep-sh/lockstep/apis/descheduler"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

const (
	gpu     = sample.GPU
	rack    = "topology.example.com/rack"
	profile = sample.Profile
)

// known are the gangs that the test has set up.
type known struct {
	waiting []*gangstate.Attempt
	running map[gangspec.Key]gangstate.RunningGang
	// group are the gangs that run and start together; nil for none.
	group []gangspec.Key
}

func (k *known) IsEvictedAlone(pod *v1.Pod) bool { return k.InNoGang(pod) }

func (k *known) PodGroupsOf(gangspec.Key) gangspec.PodGroups { return gangspec.PodGroups{} }

func (k *known) InNoGang(pod *v1.Pod) bool {
	_, _, member := gangspec.KeyOf(pod)
	return !member
}

func (k *known) Waiting(string) []*gangstate.Attempt { return k.waiting }

func (k *known) Running(_ string, key gangspec.Key) []gangstate.RunningGang {
	if slices.Contains(k.group, key) {
		var all []gangstate.RunningGang
		for _, key := range k.group {
			all = append(all, k.running[key])
		}
		return all
	}
	if f, ok := k.running[key]; ok {
		return []gangstate.RunningGang{f}
	}
	return nil
}

// lenient is a handle of the descheduler whose evictor accepts every pod.
type lenient struct{ frameworktypes.Handle }

func (lenient) Evictor() frameworktypes.Evictor { return everybody{} }

type everybody struct{ frameworktypes.Evictor }

func (everybody) Filter(*v1.Pod) bool { return true }

// stage is the plugin over a kube-scheduler that does not run, with a fake API server.
type stage struct {
	*Defragmentation
	gangs *known
	nodes []*v1.Node
}

func newStage(tb testing.TB, nodes []*v1.Node, pods []*v1.Pod, args string, objects ...runtime.Object) *stage {
	tb.Helper()
	for _, pod := range pods {
		objects = append(objects, pod)
	}
	for _, node := range nodes {
		objects = append(objects, node)
	}
	bound := slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool { return pod.Spec.NodeName == "" })
	scheduler := idle.New(tb, idle.Options{Name: profile, Objects: objects, Snapshot: cache.NewSnapshot(bound, nodes)})
	scheduler.Start()
	s := &stage{gangs: &known{running: map[gangspec.Key]gangstate.RunningGang{}}, nodes: nodes}
	parsed := &descheduler.DefragmentationArgs{}
	if t, ok := tb.(*testing.T); ok {
		parsed = read(t, args)
	}
	SetDefaults(parsed)
	s.Defragmentation = &Defragmentation{
		ended: func(error) {},
		args:  parsed, handle: lenient{}, clock: clock.RealClock{},
		scheduler: &Scheduler{
			Look:     func(context.Context) error { return nil },
			Profiles: map[string]framework.Framework{profile: scheduler.Framework}, Gangs: s.gangs, Holds: ledger.New(), Plugins: extensionpoints.New(),
			Client: fakeapi.New().Build(),
		},
	}
	return s
}

// balance makes a round, and returns the plans that exist then.
func (s *stage) balance(tb testing.TB) []v1alpha1.DefragmentationPlan {
	tb.Helper()
	if status := s.Balance(tb.Context(), s.nodes); status != nil {
		tb.Fatal(status.Err)
	}
	var list v1alpha1.DefragmentationPlanList
	must.Succeed(tb, s.scheduler.Client.List(tb.Context(), &list, &client.ListOptions{}))
	return list.Items
}

// moves returns the moves of the only plan: "a n0>n1, b n2>n1"; empty where there is none.
func (s *stage) moves(tb testing.TB) string {
	tb.Helper()
	plans := s.balance(tb)
	if len(plans) == 0 {
		return ""
	}
	var list []string
	for _, m := range plans[0].Status.Moves {
		list = append(list, fmt.Sprintf("%s %s>%s", m.PodName, m.SourceNode, m.TargetNode))
	}
	return strings.Join(list, ", ")
}

func node(name string, gpus int, inRack string) *v1.Node {
	return sample.Node(name, gpus).Label(rack, inRack).Obj()
}

// runs returns a running pod of a ReplicaSet.
func runs(name string, gpus int, on string, changes ...func(*v1.Pod)) *v1.Pod {
	pod := sample.Pod(name).Node(on).Phase(v1.PodRunning).OwnerReference("rs", appsv1.SchemeGroupVersion.WithKind("ReplicaSet")).Req(sample.GPUs(gpus)).Obj()
	pod.OwnerReferences[0].Controller = new(true)
	pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// waits returns a pod whose status has shown for a while that there is no room.
func waits(name string, gpus int, changes ...func(*v1.Pod)) *v1.Pod {
	pod := sample.Pod(name).Req(sample.GPUs(gpus)).Obj()
	pod.Status.Conditions = []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute)),
	}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

// inGang makes a pod a member.
func inGang(name string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.GangNameAnnotation, name)
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.MinAvailableAnnotation, "1")
	}
}

// running adds a gang that runs.
func (s *stage) running(name string, least int, pods ...*v1.Pod) {
	key := gangspec.Key{Namespace: "default", Name: name}
	f := gangstate.RunningGang{Key: key, Min: least}
	for _, pod := range pods {
		f.Running = append(f.Running, gangstate.Placed{Pod: pod, Node: pod.Spec.NodeName})
	}
	s.gangs.running[key] = f
}

// waiting adds a gang that waits, in one domain of a topology; empty for anywhere.
func (s *stage) waiting(name, topology string, pods ...*v1.Pod) {
	key := gangspec.Key{Namespace: "default", Name: name}
	s.gangs.waiting = append(s.gangs.waiting, &gangstate.Attempt{
		Group: key.String(), Leader: pods[0].UID, Strict: true,
		Gangs: []gangstate.Need{{Key: key, Min: len(pods), Pending: pods, Spec: gangspec.Spec{Min: len(pods), RequiredTopology: topology}}},
	})
}

func zero() resource.Quantity { return resource.MustParse("0") }

// apart keeps pods like it off its node.
func apart(pod *v1.Pod) {
	pod.Labels = map[string]string{"app": "apart"}
	pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "apart"}},
	}}}}
}

func ending(pod *v1.Pod) {
	pod.Finalizers = []string{"example.com/kept"} // otherwise the fake API server removes it
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(time.Minute))), new(int64(60))
}
