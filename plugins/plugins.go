// Package plugins puts Lockstep's plugins together with what they share in a
// process: the ledger of held capacity, the order of gangs in the queue, and the
// bound on binding calls.
package plugins

import (
	"context"

	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/lockstep-sh/lockstep/plugins/binder"
	"github.com/lockstep-sh/lockstep/plugins/gang"
	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/order"
	"github.com/lockstep-sh/lockstep/plugins/queuesort"
)

// Set is the plugins of one scheduler process.
type Set struct {
	slots *binder.Slots
	// Registry has the factories, by the names under which a
	// KubeSchedulerConfiguration enables the plugins.
	Registry frameworkruntime.Registry
}

// NewSet makes the plugins of a process. All its profiles share them.
func NewSet() *Set {
	slots, ledger, positions := binder.NewSlots(), holds.New(), order.New()
	return &Set{
		slots: slots,
		Registry: frameworkruntime.Registry{
			binder.Name:    binder.New(slots),
			gang.Name:      gang.New(ledger, positions),
			queuesort.Name: queuesort.New(positions),
		},
	}
}

// WaitForRoom blocks while so many pods wait to be bound that scheduling another
// would only lengthen the line.
func (s *Set) WaitForRoom(ctx context.Context) { s.slots.WaitForRoom(ctx) }
