package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "LicenseSeats"

// label is the label that has how many seats a pod takes while it is on a node.
const label = "example.com/seats"

// args are the arguments of the plugin.
type args struct {
	// Seats is how many there are: 1 or more.
	Seats int `json:"seats"`
}

// LicenseSeats keeps the seats of a licence that all pods of the cluster share: no pod is
// placed that would take more than there are. A seat is not on any node, so kube-scheduler's
// arithmetic knows nothing of it.
type LicenseSeats struct {
	seats int
	pods  corelisters.PodLister

	mu sync.Mutex
	// taken are the pods on nodes that take seats, by UID.
	taken map[types.UID]*v1.Pod
}

var (
	_ fwk.PreFilterPlugin   = &LicenseSeats{}
	_ fwk.FilterPlugin      = &LicenseSeats{}
	_ fwk.ReservePlugin     = &LicenseSeats{}
	_ fwk.EnqueueExtensions = &LicenseSeats{}

	_ whatif.TaskAdder          = &LicenseSeats{}
	_ whatif.TaskRemover        = &LicenseSeats{}
	_ extensionpoints.Predicate = &LicenseSeats{}
)

// New is the factory of the plugin.
func New(_ context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	var a args
	if err := frameworkruntime.DecodeInto(object, &a); err != nil {
		return nil, fmt.Errorf("reading arguments of %s: %w", Name, err)
	}
	if a.Seats < 1 {
		return nil, fmt.Errorf("reading arguments of %s: seats is %d, want 1 or more", Name, a.Seats)
	}
	pl := &LicenseSeats{seats: a.Seats, taken: map[types.UID]*v1.Pod{}, pods: handle.SharedInformerFactory().Core().V1().Pods().Lister()}
	_, err := handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    pl.see,
		UpdateFunc: func(_, object any) { pl.see(object) },
		DeleteFunc: pl.forget,
	})
	return pl, err
}

// Name returns the name of the plugin.
func (pl *LicenseSeats) Name() string { return Name }

func (pl *LicenseSeats) see(object any) {
	if pod, ok := object.(*v1.Pod); ok && pod.Spec.NodeName != "" {
		pl.take(pod)
	}
}

func (pl *LicenseSeats) forget(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if pod, ok := object.(*v1.Pod); ok {
		pl.giveBack(pod)
	}
}

func (pl *LicenseSeats) take(pod *v1.Pod) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if seatsOf(pod) > 0 {
		pl.taken[pod.UID] = pod
	}
}

func (pl *LicenseSeats) giveBack(pod *v1.Pod) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	delete(pl.taken, pod.UID)
}

// seatsOf returns how many seats a pod takes; 0 where the label is missing or is not a
// number.
func seatsOf(pod *v1.Pod) int {
	n, err := strconv.Atoi(pod.Labels[label])
	if err != nil {
		return 0
	}
	return max(0, n)
}

// stateKey is where the plugin keeps what is taken in a scheduling cycle, or in a what-if.
const stateKey fwk.StateKey = Name

type state struct{ taken int }

// Clone copies it.
func (s *state) Clone() fwk.StateData { return &state{taken: s.taken} }

// PreFilter notes how many seats are taken now. It skips pods that take none.
func (pl *LicenseSeats) PreFilter(_ context.Context, cycle fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if seatsOf(pod) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	s := &state{}
	for _, taking := range pl.taken {
		if pl.exists(taking) {
			s.taken += seatsOf(taking)
		}
	}
	cycle.Write(stateKey, s)
	return nil, nil
}

// exists reports whether a pod is still there. The handler that forgets it may come later than that of kube-scheduler,
// after which a gang is tried that its end may help; what a lister has is never older than either.
func (pl *LicenseSeats) exists(pod *v1.Pod) bool {
	now, err := pl.pods.Pods(pod.Namespace).Get(pod.Name)
	return err == nil && now.UID == pod.UID
}

// PreFilterExtensions returns none: the hooks below get pods that come and go.
func (pl *LicenseSeats) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses pods for which too few seats are left, on any node.
func (pl *LicenseSeats) Filter(_ context.Context, cycle fwk.CycleState, pod *v1.Pod, _ fwk.NodeInfo) *fwk.Status {
	if s := stateOf(cycle); s != nil && s.taken+seatsOf(pod) > pl.seats {
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("too few seats: %d of %d are taken", s.taken, pl.seats))
	}
	return nil
}

func stateOf(cycle fwk.CycleState) *state {
	data, err := cycle.Read(stateKey)
	if err != nil {
		return nil // the pod takes no seat
	}
	s, _ := data.(*state)
	return s
}

// SimulateAddTask takes in that a pod would be placed.
func (pl *LicenseSeats) SimulateAddTask(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, toAdd fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if s := stateOf(cycle); s != nil {
		s.taken += seatsOf(toAdd.GetPod())
	}
	return nil
}

// SimulateRemoveTask takes in that a pod would be evicted.
func (pl *LicenseSeats) SimulateRemoveTask(_ context.Context, cycle fwk.CycleState, _ *v1.Pod, toRemove fwk.PodInfo, _ fwk.NodeInfo) *fwk.Status {
	if s := stateOf(cycle); s != nil {
		s.taken -= seatsOf(toRemove.GetPod())
	}
	return nil
}

// GangPredicate refuses gangs that ask for more seats than there are at all.
func (pl *LicenseSeats) GangPredicate(_ context.Context, gang extensionpoints.Gang, _ []fwk.NodeInfo) *fwk.Status {
	var seats []int
	for _, pod := range gang.Pods {
		seats = append(seats, seatsOf(pod))
	}
	slices.Sort(seats)
	least := 0
	for _, n := range seats[:min(gang.Min, len(seats))] {
		least += n
	}
	if least > pl.seats {
		return fwk.NewStatus(fwk.Unschedulable, fmt.Sprintf("it takes %d seats, there are %d", least, pl.seats))
	}
	return nil
}

// Reserve takes the seats of a pod that has its node.
func (pl *LicenseSeats) Reserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	pl.take(pod)
	return nil
}

// Unreserve gives them back.
func (pl *LicenseSeats) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	pl.giveBack(pod)
}

// EventsToRegister returns the events that may give seats back.
func (pl *LicenseSeats) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}}}, nil
}
