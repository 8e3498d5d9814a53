// Package gpushare is the GPUShare plugin: pods that share GPU cards by memory.
//
// A pod gets all of its memory on one card, no card is sold beyond what it has, and a
// pod keeps its card for as long as it is on its node. An annotation of the pod names the
// card; it is written before the pod is bound.
//
// It hands out memory; it does not enforce that pods keep to it.
package gpushare

import (
	"context"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/binding"
	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/whatif"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource/gpucards"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "GPUShare"

// GPUShare is the plugin, one for each profile.
type GPUShare struct {
	handle fwk.Handle
	ledger *Ledger
	// keepers are the plugins that keep memory of cards for pods that are yet to come.
	keepers func() []CardHolder
	// notes reports whether the binder writes annotations as it binds.
	notes func() bool
}

// CardHolder is a plugin that holds memory of cards for pods that do not exist yet, such as Reservation.
type CardHolder interface {
	// KeptCards returns what is kept on a node, as far as the pod of a cycle is concerned.
	KeptCards(state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) gpucards.Kept
	// TakenCard returns the card of which a pod of a what-if has taken what was kept for it; false for none.
	TakenCard(state fwk.CycleState, pod types.UID) (int, bool)
}

var (
	_ fwk.PreFilterPlugin   = &GPUShare{}
	_ fwk.FilterPlugin      = &GPUShare{}
	_ fwk.PreScorePlugin    = &GPUShare{}
	_ fwk.ScorePlugin       = &GPUShare{}
	_ fwk.ReservePlugin     = &GPUShare{}
	_ fwk.PreBindPlugin     = &GPUShare{}
	_ fwk.EnqueueExtensions = &GPUShare{}
	_ fwk.SignPlugin        = &GPUShare{}

	_ ledger.Dependent   = &GPUShare{}
	_ whatif.TaskAdder   = &GPUShare{}
	_ whatif.TaskRemover = &GPUShare{}
)

// Name returns the name of the plugin.
func (pl *GPUShare) Name() string { return Name }

// DependsOnHolds marks that what refuses a pod may be kept for others, and end.
func (pl *GPUShare) DependsOnHolds() {}

// New returns the factory of the plugin over a ledger that all profiles share. plugins are those among which
// it finds keepers. watched passes on the pods. binder writes annotations as it binds.
func New(shared *Ledger, plugins *extensionpoints.Plugins, watched *watches.Watches,
	binder binding.Binder) frameworkruntime.PluginFactory {
	return func(_ context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if object != nil {
			return nil, fmt.Errorf("reading arguments of %s: it takes none", Name)
		}
		fw, ok := handle.(framework.Framework)
		if !ok {
			return nil, fmt.Errorf("making %s: want the framework of kube-scheduler as its handle, got %T", Name, handle)
		}
		pl := &GPUShare{handle: handle, ledger: shared, notes: binder.Binds(fw)}
		// once all plugins are made
		pl.keepers = sync.OnceValue(func() []CardHolder { return extensionpoints.Of[CardHolder](plugins, fw) })
		return pl, pl.watch(watched)
	}
}

// watch keeps the ledger from growing for ever, and up to date when the annotation of a
// bound pod is edited.
func (pl *GPUShare) watch(watched *watches.Watches) error {
	factory := pl.handle.SharedInformerFactory()
	if _, err := watched.ListenToPods(factory, watches.Cards, watches.PodListener{
		Seen: func(_, pod *v1.Pod) { pl.ledger.podChanged(pod) },
		Gone: func(pod *v1.Pod) { pl.ledger.podDeleted(pod.UID) },
	}); err != nil {
		return err
	}
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, object any) {
			if before := old.(*v1.Node); before.UID != object.(*v1.Node).UID {
				pl.ledger.nodeDeleted(before)
			}
		},
		DeleteFunc: watches.Deleted(pl.ledger.nodeDeleted),
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	return nil
}

// requested returns the GPU memory that a pod requests, in MiB.
func requested(pod *v1.Pod) int64 {
	asks := func(list []v1.Container) bool {
		for i := range list {
			if _, ok := list[i].Resources.Requests[v1alpha1.GPUMemoryResource]; ok {
				return true
			}
		}
		return false
	}
	if !asks(pod.Spec.Containers) && !asks(pod.Spec.InitContainers) {
		return 0 // nearly all pods
	}
	quantity := resource.Requests(pod)[v1alpha1.GPUMemoryResource]
	return quantity.Value()
}

// requestedBy returns the same for a pod on a node, where it is already computed.
func requestedBy(info fwk.PodInfo) int64 {
	return info.CalculateResource().Resource.GetScalarResources()[v1alpha1.GPUMemoryResource]
}
