// Package reservation is the Reservation plugin: it brings pods to what is held for them.
//
// It binds reserve pods, which look for the places of a Reservation, by writing their places down.
// A pod that owns Reservations gets the placement that suits it best, one at most; what the pod
// uses of it is its own until it ends. HeldCapacity keeps out all other pods.
//
// Package reservations knows what is held for which pods, for all profiles.
package reservation

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/plugins/extension"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/plugins/internal/reservation"
	"github.com/lockstep-sh/lockstep/plugins/planner"
	"github.com/lockstep-sh/lockstep/plugins/whatif"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "Reservation"

// Reservation is the plugin, one for each profile.
type Reservation struct {
	handle       framework.Framework
	holds        *holds.Holds
	reservations Reservations
	// planner finds a node among those where something is held for a pod.
	planner func() *planner.Planner
	// dealers are the plugins of the profile that deal out GPU cards.
	dealers func() []Dealer
	// notes: the binder of the profile writes annotations as it binds.
	notes func() bool
}

// Reservations is what is held for which pods. It recognizes reserve pods by itself: nothing is
// held for these.
type Reservations interface {
	// Serve makes it place the Reservations of a profile.
	Serve(ctx context.Context, handle fwk.Handle, preempts, yields bool) error
	// Grants returns the holders of the Reservations that a pod owns.
	Grants(pod *v1.Pod) []hold.Holder
	// Seats returns what is held for a pod, by node.
	Seats(pod *v1.Pod) map[string][]reservation.Seat
	// Missing returns why a pod cannot use the Reservation that it asks for by name; empty if it
	// can.
	Missing(pod *v1.Pod) string
	// Take makes a pod that is counted on a node from now on use a placement; false where it
	// cannot.
	Take(pod *v1.Pod, node string, id hold.ID, d holds.Demand) bool
	// Bound makes it use that for good: it is on its node, and may be gone again.
	Bound(pod *v1.Pod)
	// Return makes it give that back.
	Return(pod *v1.Pod)
	// Allocation returns what a pod uses.
	Allocation(pod *v1.Pod) (reservation.Allocation, bool)
	// Bind writes down the place of a reserve pod, with those of the others of its Reservation.
	Bind(ctx context.Context, pod *v1.Pod, node string) error
	// Cards lists the placements on GPU cards of a node.
	Cards(node string) []reservation.OnCard
	// Placed notes that a reserve pod is bound.
	Placed(pod *v1.Pod)
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
	_ holds.Granter         = &Reservation{}
	_ whatif.TaskAdder      = &Reservation{}
	_ whatif.TaskRemover    = &Reservation{}
	_ whatif.NodeLocal      = &Reservation{}
)

// Name returns the name of the plugin.
func (pl *Reservation) Name() string { return Name }

// EventsToRegister registers none: no event of the cluster means that something is held for a pod.
// HeldCapacity activates what this plugin refused.
func (pl *Reservation) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// Grants returns the holders of the Reservations that a pod owns.
func (pl *Reservation) Grants(pod *v1.Pod) []hold.Holder { return pl.reservations.Grants(pod) }

// SignPod refuses pods for which something is held: others like them do not find the same.
func (pl *Reservation) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if pl.reservations.Missing(pod) != "" || len(pl.reservations.Grants(pod)) > 0 {
		return nil, fwk.NewStatus(fwk.Unschedulable, "something is held for the pod")
	}
	return nil, nil
}

// New makes the factory of the plugin over what all profiles share. binder is the name of the
// binder that writes annotations as it binds.
func New(ledger *holds.Holds, reservations Reservations, plugins *extension.Plugins, binder string) frameworkruntime.PluginFactory {
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
		if err := reservations.Serve(ctx, handle, args.Preempt, args.Preemptable); err != nil {
			return nil, fmt.Errorf("making %s: %w", Name, err)
		}
		return &Reservation{
			handle: fw, holds: ledger, reservations: reservations,
			planner: sync.OnceValue(func() *planner.Planner { return planner.New(fw, ledger, plugins) }), // once all plugins are made
			dealers: sync.OnceValue(func() []Dealer { return extension.Of[Dealer](plugins, fw) }),
			notes: sync.OnceValue(func() bool {
				return slices.ContainsFunc(fw.ListPlugins().Bind.Enabled, func(p schedconfig.Plugin) bool { return p.Name == binder })
			}),
		}, nil
	}
}
