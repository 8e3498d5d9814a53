// Package queuesort is the GangQueueSort plugin: it orders the scheduling queue
// by priority, then by the age of gangs, with the members of a gang together.
//
// It compares positions that were frozen when a member entered the queue (package
// positions); it reads nothing that can change.
package queuesort

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/apis/config/validation"
	"github.com/lockstep-sh/lockstep/pkg/admission/positions"
)

// Name is the name of the plugin in a KubeSchedulerConfiguration.
const Name = "GangQueueSort"

// QueueSort is the plugin.
type QueueSort struct {
	order *positions.Order
}

var _ fwk.QueueSortPlugin = &QueueSort{}

// Name returns the name of the plugin.
func (pl *QueueSort) Name() string { return Name }

// Less reports whether a should be scheduled before b.
func (pl *QueueSort) Less(a, b fwk.QueuedEntityInfo) bool {
	return pl.order.Less(entryOf(a), entryOf(b))
}

func entryOf(e fwk.QueuedEntityInfo) positions.Entry {
	entry := positions.Entry{Priority: e.GetPriority(), Queued: e.GetTimestamp()}
	switch e := e.(type) {
	case *framework.QueuedPodInfo:
		entry.UID = e.Pod.UID
	case framework.QueuedEntityInfo:
		// A native pod group, where the cluster has them switched on.
		entry.UID = types.UID(string(e.Type()) + "/" + e.GetNamespace() + "/" + e.GetName())
	}
	return entry
}

// New makes the factory of the plugin over the positions that Gang freezes.
func New(o *positions.Order) frameworkruntime.PluginFactory {
	return func(_ context.Context, object runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if object != nil {
			path := validation.Path(handle.ProfileName(), Name)
			return nil, fmt.Errorf("reading arguments of %s: %w", Name, field.Forbidden(path, "it takes none; remove the entry"))
		}
		return &QueueSort{order: o}, nil
	}
}
