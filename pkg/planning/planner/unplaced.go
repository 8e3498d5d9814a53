package planner

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/cyclestate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// Unplaced is cycle state of a pod that represents an attempt which did not fit, for the plugins that can free
// capacity.
type Unplaced struct {
	Attempt *gangstate.Attempt
}

const unplacedKey fwk.StateKey = "lockstep.dev/Unplaced"

// Clone shares the value, which never changes.
func (u *Unplaced) Clone() fwk.StateData { return u }

// Write stores u in a cycle state.
func (u *Unplaced) Write(state fwk.CycleState) { state.Write(unplacedKey, u) }

// UnplacedOf returns what a pod represents; nil if it represents only itself.
func UnplacedOf(state fwk.CycleState) *Unplaced {
	return cyclestate.Read[*Unplaced](state, unplacedKey)
}
