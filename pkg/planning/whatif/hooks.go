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

	"github.com/lockstep-sh/lockstep/pkg/framework/extension"
	"github.com/lockstep-sh/lockstep/pkg/planning/devices"
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
	devices func() (*devices.Simulator, error)
	// listeners are the PreFilter plugins that may react to pods that come and go.
	listeners []string
}

// HooksOf returns the hooks of the plugins of a profile, all of which must exist.
func HooksOf(plugins *extension.Plugins, fw framework.Framework) Hooks {
	return Hooks{
		listeners:   listenersOf(fw),
		removers:    extension.Of[TaskRemover](plugins, fw),
		adders:      extension.Of[TaskAdder](plugins, fw),
		predicates:  extension.Of[Predicate](plugins, fw),
		allocatable: extension.Of[Allocatable](plugins, fw),
		volumes:     volumesOf(fw),
		devices:     sync.OnceValues(func() (*devices.Simulator, error) { return devices.New(context.Background(), fw) }),
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
	skipped := state.GetSkipFilterPlugins()
	if slices.ContainsFunc(h.adders, func(hook TaskAdder) bool { return !skipped.Has(nameOf(hook)) }) ||
		slices.ContainsFunc(h.removers, func(hook TaskRemover) bool { return !skipped.Has(nameOf(hook)) }) {
		return true
	}
	return slices.ContainsFunc(h.listeners, func(name string) bool { return !skipped.Has(name) })
}

// recordBeyond records in a view which plugins may judge a node by pods on others.
func (h Hooks) recordBeyond(v *View) {
	v.beyond = sets.New(h.listeners...).Difference(v.State.GetSkipFilterPlugins())
	nonLocal := h.nonLocal(v.State)
	v.spreads = len(nonLocal) > 0
	for _, name := range nonLocal {
		v.beyond.Insert(name, "") // a status of its Predicate has no plugin name
	}
}

// nonLocal names the plugins with hooks that may judge a node by pods on others. A plugin whose PreFilter skipped
// judges no node.
func (h Hooks) nonLocal(state fwk.CycleState) []string {
	var names []string
	note := func(hook any) {
		name := nameOf(hook)
		if _, local := hook.(NodeLocal); !local && !state.GetSkipFilterPlugins().Has(name) {
			names = append(names, name)
		}
	}
	for _, hook := range h.removers {
		note(hook)
	}
	for _, hook := range h.adders {
		note(hook)
	}
	return names
}

// nameOf returns the plugin name of a hook; empty if it is no plugin.
func nameOf(hook any) string {
	if plugin, ok := hook.(fwk.Plugin); ok {
		return plugin.Name()
	}
	return ""
}

func (h Hooks) runAdders(ctx context.Context, state fwk.CycleState, pod *v1.Pod, toAdd fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	for _, hook := range h.adders {
		if status := hook.SimulateAddTask(ctx, state, pod, toAdd, node); !status.IsSuccess() {
			return status
		}
	}
	return nil
}

func (h Hooks) runRemovers(ctx context.Context, state fwk.CycleState, pod *v1.Pod, toRemove fwk.PodInfo,
	node fwk.NodeInfo) *fwk.Status {
	for _, hook := range h.removers {
		if status := hook.SimulateRemoveTask(ctx, state, pod, toRemove, node); !status.IsSuccess() {
			return status
		}
	}
	return nil
}

func (h Hooks) runPredicates(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	for _, hook := range h.predicates {
		if status := hook.SimulatePredicate(ctx, state, pod, node); !status.IsSuccess() {
			return status
		}
	}
	return nil
}

// Admits returns success if the pod of a view may be placed at all in the simulated state.
func (t *Transaction) Admits(ctx context.Context, v *View) *fwk.Status {
	for _, hook := range t.hooks.allocatable {
		if status := hook.SimulateAllocatable(ctx, v.State, v.Pod); !status.IsSuccess() {
			return status
		}
	}
	return nil
}
