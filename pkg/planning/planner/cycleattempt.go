package planner

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/cyclestate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// cycleAttempt is in the state of a cycle. It never changes.
type cycleAttempt struct{ *gangstate.Attempt }

const cycleAttemptKey fwk.StateKey = "lockstep.dev/Attempt"

// Clone shares it.
func (a cycleAttempt) Clone() fwk.StateData { return a }

// WriteAttempt stores what the cycle of a member of a gang has to place, for the plugins that look for room for it.
// For a member that leads its group this is what the plan of the group did not place. For one that is placed by itself
// it is that member, before it is known whether it fits.
func WriteAttempt(state fwk.CycleState, a *gangstate.Attempt) {
	state.Write(cycleAttemptKey, cycleAttempt{a})
}

// AttemptOf returns what [WriteAttempt] has stored; nil for nothing: the pod is in no gang, or its place is planned.
func AttemptOf(state fwk.CycleState) *gangstate.Attempt {
	return cyclestate.Read[cycleAttempt](state, cycleAttemptKey).Attempt
}
