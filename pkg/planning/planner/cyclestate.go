package planner

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// simulated marks a cycle state in which a plan runs the plugins of the profile for a pod; it is not the pod's own
// cycle.
type simulated struct{}

const simulatedKey fwk.StateKey = "lockstep.dev/Question"

// Clone shares the mark, which never changes.
func (q simulated) Clone() fwk.StateData { return q }

// MarkSimulated marks a cycle state as a plan's simulation. The pod may use what these holders hold.
func MarkSimulated(state fwk.CycleState, holders ...hold.Holder) {
	state.Write(simulatedKey, simulated{})
	ledger.Grant(state, holders...)
}

// IsSimulated reports whether a cycle state belongs to a plan's simulation.
func IsSimulated(state fwk.CycleState) bool {
	_, err := state.Read(simulatedKey)
	return err == nil // otherwise it is a pod's own cycle
}

// operation names the planner's goroutines in kube-scheduler's metrics.
const operation = "Plan"
