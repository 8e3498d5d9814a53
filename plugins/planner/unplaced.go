package planner

import (
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// Unplaced is in the cycle state of a pod that stands for an attempt which found no
// room, for the plugins that can make some.
type Unplaced struct {
	Attempt *gang.Attempt
}

const unplacedKey fwk.StateKey = "lockstep.dev/Unplaced"

// Clone shares it; it never changes.
func (u *Unplaced) Clone() fwk.StateData { return u }

// Tell notes in a cycle state what the pod stands for.
func (u *Unplaced) Tell(state fwk.CycleState) { state.Write(unplacedKey, u) }

// UnplacedOf returns what a pod stands for; nil where it stands for itself.
func UnplacedOf(state fwk.CycleState) *Unplaced {
	data, err := state.Read(unplacedKey)
	if err != nil {
		return nil // it stands for itself
	}
	u, _ := data.(*Unplaced)
	return u
}
