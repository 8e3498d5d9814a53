package whatif

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumebinding"

	"github.com/lockstep-sh/lockstep/pkg/planning/devicesimulation"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
)

// The Simulate hooks. A plugin of the profile that implements one of these interfaces is called at every step of a
// transaction, after the framework's own PreFilterExtensions and Filter plugins; a plugin that those suffice for needs
// no hook. Hooks see a cycle state of the transaction and nodes in their simulated state; they must change nothing
// else. Hooks that change a state are called by one goroutine at a time; hooks that read, by several for the same
// state. (Names and meaning: Volcano's topology-aware preemption design.)

// TaskRemover updates a state for a pod that leaves its node. The hook must keep what the pod had there, such as a GPU
// card, for it: the pod may be restored.
type TaskRemover interface {
	SimulateRemoveTask(ctx context.Context, state fwk.CycleState, toSchedule *v1.Pod, toRemove fwk.PodInfo,
		node fwk.NodeInfo) *fwk.Status
}

// TaskAdder updates a state for a pod that comes to a node. A restored pod gets exactly what it had; a new one gets
// what the plugin would choose for it. Nominated pods of equal or higher priority are added in this way, too, whichever
// node they are nominated to.
type TaskAdder interface {
	SimulateAddTask(ctx context.Context, state fwk.CycleState, toSchedule *v1.Pod, toAdd fwk.PodInfo,
		node fwk.NodeInfo) *fwk.Status
}

// Predicate reports whether a pod would fit on a node, beyond what Filter plugins see.
type Predicate interface {
	SimulatePredicate(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status
}

// Allocatable reports whether a pod may be placed at all in the simulated state: for example, whether its queue has
// quota for it.
type Allocatable interface {
	SimulateAllocatable(ctx context.Context, state fwk.CycleState, pod *v1.Pod) *fwk.Status
}

// NodeLocal marks plugins with a TaskRemover or TaskAdder that affect only the plugin's verdict on the node that the
// pod leaves or comes to: verdicts on other nodes stand, and are not repeated. What they change for an Allocatable does
// not count.
type NodeLocal interface {
	SimulatesNodeLocally()
}

// Hooks are the hooks of a profile.
type Hooks struct {
	removers    []TaskRemover
	adders      []TaskAdder
	predicates  []Predicate
	allocatable []Allocatable
	// volumes is the profile's own plugin, if any; see MarkContending.
	volumes *volumebinding.VolumeBinding
	// devices returns the device simulator; it is created for the first pod that may need devices.
	devices func() (*devicesimulation.Simulator, error)
	// listeners are the PreFilter plugins that may react to pods that come and go; reactors are the plugins with a
	// TaskRemover or TaskAdder, and those of them that are not NodeLocal.
	listeners, reactors, nonLocal []string
}

// HooksOf returns the hooks of the plugins of a profile, all of which must exist.
func HooksOf(plugins *extensionpoints.Plugins, fw framework.Framework) Hooks {
	h := Hooks{
		listeners:   listenersOf(fw),
		removers:    extensionpoints.Of[TaskRemover](plugins, fw),
		adders:      extensionpoints.Of[TaskAdder](plugins, fw),
		predicates:  extensionpoints.Of[Predicate](plugins, fw),
		allocatable: extensionpoints.Of[Allocatable](plugins, fw),
		volumes:     volumesOf(fw),
		devices: sync.OnceValues(func() (*devicesimulation.Simulator, error) {
			return devicesimulation.New(context.Background(), fw)
		}),
	}
	for _, hook := range h.removers {
		h.addReactor(hook)
	}
	for _, hook := range h.adders {
		h.addReactor(hook)
	}
	return h
}

// addReactor adds the plugin of a hook to those that react to pods; its name is empty if it is no plugin.
func (h *Hooks) addReactor(hook any) {
	name := ""
	if plugin, ok := hook.(fwk.Plugin); ok {
		name = plugin.Name()
	}
	h.reactors = append(h.reactors, name)
	if _, local := hook.(NodeLocal); !local {
		h.nonLocal = append(h.nonLocal, name)
	}
}

// listenersOf names the PreFilter plugins of a profile that have, or may have, extensions: some plugins cannot be
// inspected.
func listenersOf(fw framework.Framework) []string {
	deaf := map[string]bool{}
	for _, plugin := range fw.EnqueueExtensions() {
		if found, ok := plugin.(fwk.PreFilterPlugin); ok && found.PreFilterExtensions() == nil {
			deaf[found.Name()] = true
		}
	}
	var names []string
	for _, plugin := range fw.ListPlugins().PreFilter.Enabled {
		if !deaf[plugin.Name] {
			names = append(names, plugin.Name)
		}
	}
	return names
}

// affectedByPods reports whether pods that come and go may matter to a cycle state.
func (h Hooks) affectedByPods(state fwk.CycleState) bool {
	return len(judging(h.reactors, state))+len(judging(h.listeners, state)) > 0
}

// judging returns those of some plugins that judge nodes for a cycle state: their PreFilter has not skipped.
func judging(names []string, state fwk.CycleState) []string {
	return slices.DeleteFunc(slices.Clone(names), state.GetSkipFilterPlugins().Has)
}

// recordBeyond records in a view which plugins may judge a node by pods on others.
func (h Hooks) recordBeyond(v *View) {
	v.beyond = sets.New(judging(h.listeners, v.State)...)
	nonLocal := judging(h.nonLocal, v.State)
	v.spreads = len(nonLocal) > 0
	for _, name := range nonLocal {
		v.beyond.Insert(name, "") // a status of its Predicate has no plugin name
	}
}

// each calls hooks until one fails, and returns its status.
func each[H any](hooks []H, call func(H) *fwk.Status) *fwk.Status {
	for _, hook := range hooks {
		if status := call(hook); !status.IsSuccess() {
			return status
		}
	}
	return nil
}

func (h Hooks) runAdders(ctx context.Context, state fwk.CycleState, pod *v1.Pod, toAdd fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	return each(h.adders, func(a TaskAdder) *fwk.Status { return a.SimulateAddTask(ctx, state, pod, toAdd, node) })
}

func (h Hooks) runRemovers(ctx context.Context, state fwk.CycleState, pod *v1.Pod, toRemove fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	return each(h.removers, func(r TaskRemover) *fwk.Status {
		return r.SimulateRemoveTask(ctx, state, pod, toRemove, node)
	})
}

// Admits returns success if the pod of a view may be placed at all in the simulated state.
func (t *Transaction) Admits(ctx context.Context, v *View) *fwk.Status {
	return each(t.hooks.allocatable, func(a Allocatable) *fwk.Status { return a.SimulateAllocatable(ctx, v.State, v.Pod) })
}
