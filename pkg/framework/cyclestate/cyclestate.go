// Package cyclestate reads what plugins store in the state of a scheduling cycle.
package cyclestate

import fwk "k8s.io/kube-scheduler/framework"

// Read returns what a state has under a key; the zero value if it has nothing there, or something of another type.
func Read[T fwk.StateData](state fwk.CycleState, key fwk.StateKey) (value T) {
	data, err := state.Read(key)
	if err == nil {
		value, _ = data.(T)
	}
	return value
}
