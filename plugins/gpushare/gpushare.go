// Package gpushare is the GPUShare plugin: pods that share GPU cards by memory.
//
// A pod gets all of its memory on one card, no card is sold beyond what it has, and a
// pod keeps its card for as long as it is on its node. Which card that is stands in an
// annotation of the pod, written before the pod is bound.
//
// It hands out memory; that pods keep to it is for whoever runs them.
package gpushare

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	resourcehelper "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/whatif"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "GPUShare"

// GPUShare is the plugin, one for each profile.
type GPUShare struct {
	handle fwk.Handle
	ledger *Ledger
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

	_ whatif.TaskAdder   = &GPUShare{}
	_ whatif.TaskRemover = &GPUShare{}
)

// Name returns the name of the plugin.
func (pl *GPUShare) Name() string { return Name }

// New makes the factory of the plugin over a ledger that all profiles share.
func New(ledger *Ledger) frameworkruntime.PluginFactory {
	return func(_ context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if object != nil {
			return nil, fmt.Errorf("reading arguments of %s: it takes none", Name)
		}
		pl := &GPUShare{handle: handle, ledger: ledger}
		return pl, pl.watch()
	}
}

// watch keeps the ledger from growing for ever, and in step with who edits the
// annotation of a pod that is bound.
func (pl *GPUShare) watch() error {
	factory := pl.handle.SharedInformerFactory()
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, object any) { pl.podChanged(old.(*v1.Pod), object.(*v1.Pod)) },
		DeleteFunc: func(object any) {
			if pod, ok := last[*v1.Pod](object); ok {
				pl.ledger.podGone(pod.UID)
			}
		},
	}); err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	if _, err := factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: func(old, object any) {
			if before := old.(*v1.Node); before.UID != object.(*v1.Node).UID {
				pl.ledger.nodeGone(before)
			}
		},
		DeleteFunc: func(object any) {
			if node, ok := last[*v1.Node](object); ok {
				pl.ledger.nodeGone(node)
			}
		},
	}); err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	return nil
}

// podChanged takes in a new version of a pod, or another pod of its name: a watch that was
// interrupted does not tell of the end of the one before.
func (pl *GPUShare) podChanged(before, now *v1.Pod) {
	if before.UID != now.UID {
		pl.ledger.podGone(before.UID)
	}
	pl.ledger.podSeen(now)
}

// last is the last that is known of an object which was deleted.
func last[T any](object any) (T, bool) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	t, ok := object.(T)
	return t, ok
}

// requested is the GPU memory that a pod requests, in MiB.
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
	quantity := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})[v1alpha1.GPUMemoryResource]
	return quantity.Value()
}

// requestedBy is the same of a pod on a node, which has it worked out.
func requestedBy(info fwk.PodInfo) int64 {
	return info.CalculateResource().Resource.GetScalarResources()[v1alpha1.GPUMemoryResource]
}
