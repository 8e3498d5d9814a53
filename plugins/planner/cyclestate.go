package planner

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/holds"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// Question is in the cycle state where it is a plan that asks the plugins of the
// profile about a pod, and not the pod's own cycle.
type Question struct {
	// Holders are those whose holds are no obstacle.
	Holders []hold.Holder
	Demand  holds.Demand
}

const questionKey fwk.StateKey = "lockstep.dev/Question"

// Clone shares the question, which never changes.
func (q *Question) Clone() fwk.StateData { return q }

// Ask makes a cycle state one of a plan's question.
func Ask(state fwk.CycleState, q *Question) { state.Write(questionKey, q) }

// QuestionOf returns the question that a cycle state is about; nil for none.
func QuestionOf(state fwk.CycleState) *Question {
	data, err := state.Read(questionKey)
	if err != nil {
		return nil // a pod's own cycle
	}
	q, _ := data.(*Question)
	return q
}

// operation is how kube-scheduler's metrics name the planner's goroutines.
const operation = "Plan"
