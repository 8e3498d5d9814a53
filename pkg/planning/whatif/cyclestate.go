package whatif

import (
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// simulated marks the cycle state of a view, or a clone of it.
type simulated struct{}

const simulatedKey fwk.StateKey = "lockstep.dev/Question"

// Clone shares the mark, which never changes.
func (s simulated) Clone() fwk.StateData { return s }

// newState returns the cycle state of a view for a pod that may use what these holders hold.
func newState(holders []hold.Holder) fwk.CycleState {
	state := framework.NewCycleState()
	MarkSimulated(state)
	ledger.Grant(state, holders...)
	return state
}

// MarkSimulated marks a cycle state as that of a what-if, which itself accounts for devices.
func MarkSimulated(state fwk.CycleState) { state.Write(simulatedKey, simulated{}) }

// IsSimulated reports whether a cycle state belongs to a what-if. It is not the pod's own cycle then.
func IsSimulated(state fwk.CycleState) bool {
	_, err := state.Read(simulatedKey)
	return err == nil // otherwise it is a pod's own cycle
}
