package heldcapacity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/utils/clock"

	"github.com/lockstep-sh/lockstep/apis/config/validation"
	"github.com/lockstep-sh/lockstep/pkg/framework/cacheevents"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/devicesimulation"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "HeldCapacity"

// HeldCapacity is the plugin, one for each profile.
type HeldCapacity struct {
	handle  fwk.Handle
	holds   *ledger.Shared
	clock   clock.WithTicker
	blocked blocked
	// granters are the plugins of the profile that know what is held for pods.
	granters func() []ledger.Granter
	// refusers are the names of the plugins whose refusals end when a hold does.
	refusers func() []string
	// devices returns the simulator of devices; made for the first pod that needs any while some are held.
	devices func() (*devicesimulation.Simulator, error)
}

var (
	_ fwk.EnqueueExtensions = &HeldCapacity{}
	_ fwk.PreFilterPlugin   = &HeldCapacity{}
	_ fwk.FilterPlugin      = &HeldCapacity{}
	_ fwk.SignPlugin        = &HeldCapacity{}
	_ cacheevents.Listener  = &HeldCapacity{}
)

const visitKey fwk.StateKey = "lockstep.dev/" + Name

// visit is what PreFilter found out about a pod.
type visit struct {
	demand  ledger.Demand
	holders []hold.Holder
	// devices checks whether the pod finds devices beside those that are held for others; nil if it needs none, or if
	// none are held.
	devices *devicesLeft
}

// Clone returns the same visit, which never changes.
func (v *visit) Clone() fwk.StateData { return v }

// Name returns the name of the plugin.
func (pl *HeldCapacity) Name() string { return Name }

// EventsToRegister registers none: no event of the cluster shows when a hold ends. The plugin itself
// activates what it refused, once something ends on a node that refused it.
func (pl *HeldCapacity) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return nil, nil
}

// PreFilter skips Filter while nothing is held.
func (pl *HeldCapacity) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	_ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if pl.holds.Empty() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	v := &visit{
		demand:  ledger.DemandOf(&framework.PodInfo{Pod: pod}),
		holders: pl.holds.Holding(slices.Concat(ledger.Granted(state, pod), ledger.GrantedBy(pl.granters(), pod))),
	}
	if !whatif.IsSimulated(state) {
		var err error
		if v.devices, err = pl.besideHeld(ctx, pod, v.holders); err != nil {
			return nil, fwk.AsStatus(err)
		}
	}
	state.Write(visitKey, v)
	return nil, nil
}

// PreFilterExtensions returns none: Filter reads the pods of a node from the node.
func (pl *HeldCapacity) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter keeps a pod out of what is held for others. It costs a look-up, and arithmetic where
// something is held. For a pod that needs devices it costs what DynamicResources does, where some are held.
func (pl *HeldCapacity) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	data, err := state.Read(visitKey)
	if err != nil {
		return nil // nothing was held
	}
	v, ok := data.(*visit)
	if !ok {
		return fwk.AsStatus(fmt.Errorf("reading the cycle state of %s: got %T", Name, data))
	}
	if status := pl.holds.Check(v.demand, info, v.holders...); !status.IsSuccess() || v.devices == nil {
		return status
	}
	return v.devices.check(ctx, pod, info)
}

// SignPod keeps kube-scheduler's batching working: a node that it proposes for a pod because it
// was good for a similar pod is still filtered.
func (pl *HeldCapacity) SignPod(context.Context, *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}

// HandleCycleStart notes that a scheduling cycle begins.
func (pl *HeldCapacity) HandleCycleStart(*v1.Pod) { pl.blocked.begin() }

// HandleFailedCycle notes a pod that found no node, if a plugin refused it for what is held on a node: this
// plugin, or another one that depends on holds. Where no single node refused it, it may
// fit wherever a hold ends.
func (pl *HeldCapacity) HandleFailedCycle(_ context.Context, pod *v1.Pod, why error) {
	var unfit *framework.FitError
	if pod.Spec.SchedulerName != pl.handle.ProfileName() || !errors.As(why, &unfit) {
		return
	}
	ours := pl.refusers()
	if !slices.ContainsFunc(ours, unfit.Diagnosis.UnschedulablePlugins.Has) {
		return
	}
	var nodes []string
	unfit.Diagnosis.NodeToStatus.ForEachExplicitNode(func(node string, status *fwk.Status) {
		if slices.Contains(ours, status.Plugin()) {
			nodes = append(nodes, node)
		}
	})
	if len(nodes) == 0 {
		nodes = []string{anyHold}
	}
	pl.blocked.addPod(pod, nodes)
}

// HandleEvent rouses pods that may fit now, by what the scheduler's cache has taken in.
func (pl *HeldCapacity) HandleEvent(event fwk.ClusterEvent, before, after any) {
	switch {
	case cacheevents.Frees(event):
		if pod, ok := before.(*v1.Pod); ok {
			pl.blocked.ended(pod.Spec.NodeName)
		}
	case event.Resource == fwk.Node && cacheevents.Helps(event, before, after):
		pl.blocked.retryAll()
	case cacheevents.FreesDevices(event, before, after):
		pl.blocked.devicesFreed()
	}
}

// wakeEvery is how often pods that may fit by now are activated.
const wakeEvery = 100 * time.Millisecond

// wake activates pods that may fit by now.
func (pl *HeldCapacity) wake(ctx context.Context) {
	ticker := pl.clock.NewTicker(wakeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			byName := map[string]*v1.Pod{}
			for _, pod := range pl.blocked.takeRetries() {
				byName[pod.Namespace+"/"+pod.Name] = pod
			}
			if len(byName) > 0 {
				pl.handle.Activate(klog.FromContext(ctx), byName)
			}
		}
	}
}

// New returns the factory of the plugin over the ledger that all profiles share. events has what
// the scheduler's cache takes in, and plugins are those of all profiles.
func New(holds *ledger.Shared, events *cacheevents.Events, plugins *extensionpoints.Plugins,
	watched *watches.Watches) frameworkruntime.PluginFactory {
	return func(ctx context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if object != nil {
			path := validation.Path(handle.ProfileName(), Name)
			return nil, fmt.Errorf("reading arguments of %s: %w", Name, field.Forbidden(path, "it takes none; remove the entry"))
		}
		fw, ok := handle.(framework.Framework)
		if !ok {
			return nil, fmt.Errorf("making %s: want the framework of kube-scheduler as its handle, got %T", Name, handle)
		}
		pl := newPlugin(holds, events, plugins, fw, clock.RealClock{})
		if _, err := watched.ListenToPods(handle.SharedInformerFactory(), watches.Nominations, watches.PodListener{
			Seen: func(_, now *v1.Pod) {
				if now.Spec.NodeName != "" {
					pl.blocked.forget(now.UID)
				}
			},
			Gone: func(last *v1.Pod) { pl.blocked.forget(last.UID) },
		}); err != nil {
			return nil, err
		}
		go pl.wake(ctx)
		return pl, nil
	}
}

func newPlugin(holds *ledger.Shared, events *cacheevents.Events, plugins *extensionpoints.Plugins,
	fw framework.Framework, clock clock.WithTicker) *HeldCapacity {
	pl := &HeldCapacity{handle: fw, holds: holds, clock: clock}
	// once all are made
	pl.refusers = sync.OnceValue(func() []string {
		names := []string{Name}
		for _, plugin := range extensionpoints.Of[fwk.Plugin](plugins, fw) {
			_, grants := plugin.(ledger.Granter)
			_, depends := plugin.(ledger.Dependent)
			if grants || depends {
				names = append(names, plugin.Name())
			}
		}
		return names
	})
	pl.granters = sync.OnceValue(func() []ledger.Granter { return extensionpoints.Of[ledger.Granter](plugins, fw) })
	pl.devices = sync.OnceValues(func() (*devicesimulation.Simulator, error) {
		return devicesimulation.New(context.Background(), fw)
	})
	holds.OnFreed(pl.blocked.released)
	events.Listen(pl)
	return pl
}
