package devices

import fwk "k8s.io/kube-scheduler/framework"

// accounted marks a cycle state whose creator accounts for devices.
type accounted struct{}

// Clone shares the mark, which never changes.
func (accounted) Clone() fwk.StateData { return accounted{} }

const accountedKey fwk.StateKey = "lockstep.dev/devices"

// MarkAccounted marks a cycle state: its creator accounts for devices itself, including those held for others.
func MarkAccounted(state fwk.CycleState) { state.Write(accountedKey, accounted{}) }

// IsAccounted reports whether a cycle state, or one that it is a clone of, was marked by MarkAccounted.
func IsAccounted(state fwk.CycleState) bool {
	_, err := state.Read(accountedKey)
	return err == nil
}
