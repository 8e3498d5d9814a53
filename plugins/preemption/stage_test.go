package preemption

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

const (
	gpu     = sample.GPU
	profile = sample.Profile
	rack    = "topology.example.com/rack"
)

// stage is the plugin inside a real scheduler: all default plugins, the real snapshot. Nothing runs;
// the API server is a fake. No profile knows what runs of any gang: that is read from the pods.
type stage struct {
	*GangPreemption
	ctx context.Context
}

func newStage(tb testing.TB, nodes []*v1.Node, pods []*v1.Pod, objects ...runtime.Object) *stage {
	tb.Helper()
	return newStageWith(tb, nil, nodes, pods, objects...)
}

// newStageWith does what newStage does, with one more plugin in the profile; nil for none.
func newStageWith(tb testing.TB, more fwk.Plugin, nodes []*v1.Node, pods []*v1.Pod, objects ...runtime.Object) *stage {
	tb.Helper()
	s := &stage{}
	plugins := extensionpoints.New()
	registry := frameworkruntime.Registry{Name: idle.Keep(&s.GangPreemption, New(Shared{Holds: ledger.New(), Gangs: known{}, Plugins: plugins, Promises: noPromises{}, Queues: queuesFor(""), Underway: evictions.NewActivePreemptions(), Watches: watches.New(), Decisions: decisions.New()}))}
	if more != nil {
		registry[more.Name()] = plugins.Watch(func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return more, nil })
	}
	scheduler := idle.New(tb, idle.Options{
		Name: profile, Plugins: registry, Objects: objects, Snapshot: schedulercache.NewSnapshot(pods, nodes),
		Configure: func(p *schedconfig.KubeSchedulerProfile) {
			p.PluginConfig = append(p.PluginConfig, schedconfig.PluginConfig{Name: Name, Args: &config.GangPreemptionArgs{
				MinCandidateNodesPercentage: 100, MinCandidateNodesAbsolute: 100, Workers: 4, MaxDomains: 5, ROIThresholdPercent: 5, EvictBrokenGangs: true,
				SearchTimeout: metav1.Duration{Duration: config.MaxSearchTimeout}, EvictBy: v1alpha1.EvictByDelete,
			}})
		},
	})
	s.ctx = scheduler.Context
	s.know(known{})
	_, err := scheduler.Informers.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: watches.Deleted(func(pod *v1.Pod) { s.Underway.RecordEnd(pod.UID, time.Now()) }), // as the waiting room does
	})
	must.Succeed(tb, err)
	scheduler.Start()
	return s
}

// objectsOf returns pods as an API server has them.
func objectsOf(pods ...[]*v1.Pod) (objects []runtime.Object) {
	for _, pod := range slices.Concat(pods...) {
		objects = append(objects, pod)
	}
	return objects
}

// noPromises are no holds for pods that do not exist yet.
type noPromises struct{}

func (noPromises) Yielding(int32) []hold.Holder { return nil }

func (noPromises) Yield(context.Context, []hold.Holder, []string, int32) error { return nil }

// execution carries out what was found for a preemptor.
func (s *stage) execution(d *demand, f *found) *execution {
	e := &execution{GangPreemption: s.GangPreemption, d: d, f: f}
	if f != nil && f.preemption == nil {
		e.makePreemption()
	}
	return e
}

// decision returns a decision for a preemptor.
func (s *stage) decision(d *demand) *evictions.Preemption {
	f := &found{plan: &planner.Plan{}}
	s.execution(d, f)
	return f.preemption
}

// know makes the plugin know these gangs.
func (s *stage) know(gangs Gangs) { s.Gangs, s.evictor.Gangs = gangs, gangs }

// node returns a node with so many GPUs, in a rack.
func node(name string, gpus int, inRack string) *v1.Node {
	return sample.Node(name, gpus).Label(rack, inRack).Obj()
}

// member returns a pod of a gang; without a minimum it is in none. Without a node it is pending.
func member(gangName string, i, min int, priority int32, gpus int, on string) *v1.Pod {
	return sample.Member(gangName, i, min).Priority(priority).Req(sample.GPUs(gpus)).Node(on).Obj()
}

// demand returns what room is sought for: a gang of these pods, of which some may run.
func (s *stage) demand(tb testing.TB, spec gangspec.Spec, pods ...*v1.Pod) *demand {
	tb.Helper()
	spec.Min = len(pods)
	key, _, _ := gangspec.KeyOf(pods[0])
	need := gangstate.Need{Key: key, Spec: spec, Floor: spec.MinResources}
	for _, pod := range pods {
		if pod.Spec.NodeName != "" {
			need.Placed = append(need.Placed, gangstate.Placed{Pod: pod, Node: pod.Spec.NodeName})
		} else {
			need.Pending = append(need.Pending, pod)
		}
	}
	need.Min = len(need.Pending)
	leader := need.Pending[0]
	state := framework.NewCycleState()
	planner.WriteAttempt(state, &gangstate.Attempt{Group: key.String(), Leader: leader.UID, Strict: true, Gangs: []gangstate.Need{need}})
	d, err := s.demandOf(state, leader)
	must.Succeed(tb, err)
	return d
}
