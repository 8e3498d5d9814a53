package schedulersetup

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/pkg/framework/cacheevents"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/reservations"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/plugins/gpushare"
	"github.com/lockstep-sh/lockstep/plugins/heldcapacity"
	"github.com/lockstep-sh/lockstep/plugins/reservation"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// stage is kube-scheduler with the plugin and HeldCapacity, which does not run: the test places pods.
type stage struct {
	testing.TB
	*idle.Scheduler
	holds    *ledger.Shared
	registry *reservations.Registry
	planner  *planner.Planner
	// native is what all native PodGroups say.
	native *gangspec.PodGroupDescription
	serial int
}

// InNoGang implements reservation.Gangs.
func (s *stage) InNoGang(pod *v1.Pod) bool {
	_, _, member := gangspec.GangOf(pod, func(gangspec.Key) *gangspec.PodGroupDescription { return s.native })
	return !member
}

// free is queues that pay for nothing.
type free struct{}

func (free) Charge(hold.ID, *v1.Pod, string, hold.Taken) {}

func (free) Recheck() {}

func newStage(t testing.TB, nodes map[string]string) *stage {
	t.Helper()
	s := &stage{TB: t, holds: ledger.New()}
	s.registry = reservations.New(s.holds, reservepods.NewStore(), watches.New(), nil, free{})
	plugins := extensionpoints.New()
	s.Scheduler = idle.New(t, idle.Options{Plugins: frameworkruntime.Registry{
		reservation.Name:  plugins.Watch(reservation.New(s.holds, s, s.registry, plugins, binding.Binder{})),
		heldcapacity.Name: plugins.Watch(heldcapacity.New(s.holds, cacheevents.New(), plugins, watches.New())),
		gpushare.Name:     plugins.Watch(gpushare.New(gpushare.NewLedger(), plugins, watches.New(), binding.Binder{})),
	}})
	s.Start()
	for name, cpu := range nodes {
		s.Cache.AddNode(klog.Background(), st.MakeNode().Name(name).Label(v1.LabelHostname, name).Capacity(map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourcePods: "100"}).Obj())
	}
	s.Look(t)
	s.planner = planner.New(s.Framework, s.holds, plugins)
	return s
}

// reserve holds a Reservation for pods with a label on nodes, with so many CPUs on each.
func (s *stage) reserve(name, label string, cpu int, once bool, nodes ...string) {
	s.registry.Update(s.reservation(name, label, cpu, once, nodes...))
}

func (s *stage) reservation(name, label string, cpu int, once bool, nodes ...string) *v1alpha1.Reservation {
	s.serial++
	r := &v1alpha1.Reservation{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(s.serial), CreationTimestamp: metav1.Now()}}
	r.Spec = v1alpha1.ReservationSpec{
		Owners: []v1alpha1.ReservationOwner{{LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: ""}}}},
		Template: v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: *resource.NewQuantity(int64(cpu), resource.DecimalSI)}},
		}}}},
		AllocateOnce: &once, Replicas: int32(len(nodes)),
	}
	r.Status.Phase = v1alpha1.ReservationAvailable
	for i, node := range nodes {
		r.Status.Placements = append(r.Status.Placements, v1alpha1.ReservationPlacement{Index: int32(i), NodeName: node})
	}
	return r
}

func (s *stage) pod(cpu int, labels ...string) *v1.Pod {
	s.serial++
	pod := st.MakePod().Namespace("default").Name(fmt.Sprint("p", s.serial)).UID(fmt.Sprint("p", s.serial)).
		Req(map[v1.ResourceName]string{v1.ResourceCPU: fmt.Sprint(cpu)})
	for _, label := range labels {
		pod.Label(label, "")
	}
	return pod.Obj()
}

// fits returns the nodes on which a pod fits, with the state of its cycle, which others may prepare.
func (s *stage) fits(pod *v1.Pod, prepare ...func(fwk.CycleState)) (fwk.CycleState, []string) {
	s.Helper()
	s.Look(s.TB)
	state := framework.NewCycleState()
	for _, do := range prepare {
		do(state)
	}
	result, status, _ := s.Framework.RunPreFilterPlugins(context.Background(), state, pod)
	if status.IsRejected() {
		return state, nil
	}
	if !status.IsSuccess() {
		s.Fatal(status.AsError())
	}
	infos, err := s.Snapshot.NodeInfos().List()
	must.Succeed(s.TB, err)
	var names []string
	for _, info := range infos {
		if name := info.Node().Name; (result.AllNodes() || result.NodeNames.Has(name)) && s.Framework.RunFilterPlugins(context.Background(), state, pod, info).IsSuccess() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return state, names
}

// place assumes a pod on a node and reserves it there, as a cycle does; it returns false where that fails.
func (s *stage) place(state fwk.CycleState, pod *v1.Pod, node string) (*v1.Pod, bool) {
	s.Helper()
	pod = pod.DeepCopy()
	pod.Spec.NodeName = node
	must.Succeed(s.TB, s.Cache.AssumePod(klog.Background(), pod))
	if status := s.Framework.RunReservePluginsReserve(context.Background(), state, pod, node); !status.IsSuccess() {
		s.takeBack(state, pod)
		return nil, false
	}
	return pod, true
}

func (s *stage) takeBack(state fwk.CycleState, pod *v1.Pod) {
	s.Helper()
	s.Framework.RunReservePluginsUnreserve(context.Background(), state, pod, pod.Spec.NodeName)
	must.Succeed(s.TB, s.Cache.ForgetPod(klog.Background(), pod))
}

// oversold returns a node on which more is used and held than it has; empty where there is none.
func (s *stage) oversold() string {
	s.Helper()
	s.Look(s.TB)
	infos, err := s.Snapshot.NodeInfos().List()
	must.Succeed(s.TB, err)
	for _, info := range infos {
		held, _ := s.holds.Others(info)
		has, used := info.GetAllocatable().GetMilliCPU(), info.GetRequested().GetMilliCPU()
		if used+held.Request[v1.ResourceCPU] > has {
			return fmt.Sprintf("node %s has %d, of which %d are used and %d held", info.Node().Name, has, used, held.Request[v1.ResourceCPU])
		}
	}
	return ""
}

// TestNeverOversold: whatever pods and Reservations come and go, what is used and held on a node is never more than it
// has.
func TestNeverOversold(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 7))
			s := newStage(t, map[string]string{"a": "16", "b": "16", "c": "8"})
			type placed struct {
				pod   *v1.Pod
				state fwk.CycleState
			}
			var pods []placed
			var reserved []string
			labels := []string{"red", "blue", "green"}
			counts := map[string]int{}
			for step := range 400 {
				switch n := random.IntN(10); {
				case n == 0: // a place is found for a Reservation, as for a pod
					cpu := 1 + random.IntN(8)
					if _, nodes := s.fits(s.pod(cpu)); len(nodes) > 0 {
						name := fmt.Sprint("r", step)
						s.reserve(name, labels[random.IntN(3)], cpu, random.IntN(2) == 0, nodes[random.IntN(len(nodes))])
						reserved = append(reserved, name)
						counts["reserved"]++
					}
				case n == 1 && len(reserved) > 0:
					i := random.IntN(len(reserved))
					s.registry.Update(ended(reserved[i], &s.serial))
					reserved = slices.Delete(reserved, i, i+1)
				case n < 4 && len(pods) > 0:
					i := random.IntN(len(pods))
					s.takeBack(pods[i].state, pods[i].pod)
					pods = slices.Delete(pods, i, i+1)
				default:
					var own []string
					for _, label := range labels {
						if random.IntN(3) == 0 {
							own = append(own, label)
						}
					}
					pod := s.pod(1+random.IntN(10), own...)
					if len(reserved) > 0 && random.IntN(6) == 0 {
						pod.Annotations = map[string]string{v1alpha1.ReservationAnnotation: reserved[random.IntN(len(reserved))]}
					}
					state, nodes := s.fits(pod)
					if len(nodes) == 0 {
						continue
					}
					if done, ok := s.place(state, pod, nodes[random.IntN(len(nodes))]); ok {
						pods = append(pods, placed{done, state})
						counts["placed"]++
						if _, uses := s.registry.Allocation(done); uses {
							counts["used"]++
						}
					}
				}
				if what := s.oversold(); what != "" {
					t.Fatalf("step %d: %s", step, what)
				}
			}
			if counts["reserved"] < 5 || counts["used"] < 5 || counts["placed"] < 20 {
				t.Errorf("little happened: %v", counts)
			}
		})
	}
}

// ended returns a Reservation that has ended.
func ended(name string, serial *int) *v1alpha1.Reservation {
	*serial++
	return &v1alpha1.Reservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(*serial), CreationTimestamp: metav1.Now()},
		Status:     v1alpha1.ReservationStatus{Phase: v1alpha1.ReservationFailed},
	}
}
