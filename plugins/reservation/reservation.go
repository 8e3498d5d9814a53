// Package reservation is the Reservation plugin: it places Reservations, and brings pods to what is held for them.
//
// It binds reserve pods, which look for the places of a Reservation, by writing their places into its status. A pod
// that owns Reservations gets the placement that suits it best, one at most, and keeps what it uses of it until it
// ends. HeldCapacity keeps all other pods out.
//
// Package reservations knows what is held for which pods, for all profiles.
package reservation

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = planner.ReservationPlugin

// Reservation is the plugin, one for each profile.
type Reservation struct {
	handle       framework.Framework
	holds        *ledger.Shared
	gangs        Gangs
	reservations Reservations
	// planner finds a node among those with capacity held for a pod.
	planner func() *planner.Planner
	// cardAllocators are the plugins of the profile that allocate GPU cards.
	cardAllocators func() []CardAllocator
	// notes: the profile's binder writes annotations as it binds.
	notes func() bool
}

// Gangs knows the gangs of pods.
type Gangs interface {
	// InNoGang reports whether a pod is in no gang that is scheduled here.
	InNoGang(pod *v1.Pod) bool
}

// Reservations is what is held for which pods. It recognizes reserve pods: nothing is held for these.
type Reservations interface {
	// Serve makes it place the Reservations of a profile.
	Serve(ctx context.Context, handle framework.Framework, preempts, yields bool) error
	// Grants returns the holders of the Reservations that a pod owns.
	Grants(pod *v1.Pod) []hold.Holder
	// Slots returns what is held for a pod, by node, as if the holds for which without returns true were not there.
	Slots(pod *v1.Pod, without func(hold.Hold) bool) map[string][]reservationstate.Slot
	// Missing returns why a pod has to wait for a Reservation that it owns; empty if it need not.
	Missing(pod *v1.Pod) string
	// Use makes a pod that is now counted on a node use a placement; false if it cannot.
	Use(pod *v1.Pod, node string, id hold.ID, d ledger.Demand) bool
	// PodBound makes the allocation of a bound pod permanent.
	PodBound(pod *v1.Pod)
	// Release makes a pod return what it uses.
	Release(pod *v1.Pod)
	// Allocation returns what a pod uses.
	Allocation(pod *v1.Pod) (reservationstate.Allocation, bool)
	// Bind records the place of a reserve pod, and returns once all places of its Reservation are written.
	Bind(ctx context.Context, pod *v1.Pod, node string) error
	// Cards lists the placements on GPU cards of a node.
	Cards(node string) []reservationstate.OnCard
	// RemoveReservePod removes a reserve pod that is bound.
	RemoveReservePod(pod *v1.Pod)
}

var (
	_ fwk.EnqueueExtensions = &Reservation{}
	_ fwk.PreFilterPlugin   = &Reservation{}
	_ fwk.FilterPlugin      = &Reservation{}
	_ fwk.PreScorePlugin    = &Reservation{}
	_ fwk.ScorePlugin       = &Reservation{}
	_ fwk.ReservePlugin     = &Reservation{}
	_ fwk.BindPlugin        = &Reservation{}
	_ fwk.PostBindPlugin    = &Reservation{}
	_ fwk.SignPlugin        = &Reservation{}
	_ ledger.Granter        = &Reservation{}
	_ whatif.TaskAdder      = &Reservation{}
	_ whatif.TaskRemover    = &Reservation{}
	_ whatif.NodeLocal      = &Reservation{}
)

// Name returns the name of the plugin.
func (pl *Reservation) Name() string { return Name }

// EventsToRegister registers none: no cluster event means that something is held for a pod. HeldCapacity activates the
// pods that this plugin refused.
func (pl *Reservation) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// Grants returns the holders of the Reservations that a pod owns.
func (pl *Reservation) Grants(pod *v1.Pod) []hold.Holder { return pl.reservations.Grants(pod) }

// SignPod refuses pods for which something is held: pods with the same spec find something else.
func (pl *Reservation) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if pl.reservations.Missing(pod) != "" || len(pl.reservations.Grants(pod)) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "something is held for the pod")
	}
	return nil, nil
}

// New returns the factory of the plugin. binder is the name of the binder that writes annotations as it binds.
func New(holds *ledger.Shared, gangs Gangs, reservations Reservations, plugins *extensionpoints.Plugins,
	binder binding.Binder) frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		args := &config.ReservationArgs{}
		if object != nil {
			var ok bool
			if args, ok = object.(*config.ReservationArgs); !ok {
				return nil, fmt.Errorf("reading arguments of %s: want ReservationArgs, got %T", Name, object)
			}
		}
		fw, ok := handle.(framework.Framework)
		if !ok {
			return nil, fmt.Errorf("making %s: want the framework of kube-scheduler as its handle, got %T", Name, handle)
		}
		if err := reservations.Serve(ctx, fw, args.Preempt, args.Preemptable); err != nil {
			return nil, fmt.Errorf("making %s: %w", Name, err)
		}
		return &Reservation{
			handle: fw, holds: holds, gangs: gangs, reservations: reservations,
			// once all plugins are made
			planner:        sync.OnceValue(func() *planner.Planner { return planner.New(fw, holds, plugins) }),
			cardAllocators: sync.OnceValue(func() []CardAllocator { return extensionpoints.Of[CardAllocator](plugins, fw) }),
			notes:          binder.Binds(fw),
		}, nil
	}
}
