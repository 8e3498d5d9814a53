package planner

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// question marks a cycle state in which a plan asks the plugins of the profile about a pod; it
// is not the pod's own cycle.
type question struct{}

const questionKey fwk.StateKey = "lockstep.dev/Question"

// Clone shares the question, which never changes.
func (q question) Clone() fwk.StateData { return q }

// Ask makes a cycle state one of a plan's question. The holds of these holders are no
// obstacle.
func Ask(state fwk.CycleState, holders ...hold.Holder) {
	state.Write(questionKey, question{})
	holds.Grant(state, holders...)
}

// Asks reports whether a cycle state is about a plan's question.
func Asks(state fwk.CycleState) bool {
	_, err := state.Read(questionKey)
	return err == nil // else it is a pod's own cycle
}

// operation is how kube-scheduler's metrics name the planner's goroutines.
const operation = "Plan"
