package devices

import fwk "k8s.io/kube-scheduler/framework"

// accounted marks a cycle state whose maker accounts for devices.
type accounted struct{}

// Clone returns the same.
func (accounted) Clone() fwk.StateData { return accounted{} }

const accountedKey fwk.StateKey = "lockstep.dev/devices"

// Account marks a cycle state: its maker accounts for devices itself, including those that are held for others.
func Account(state fwk.CycleState) { state.Write(accountedKey, accounted{}) }

// Accounted reports whether Account was called with a cycle state, or with one that it is a clone of.
func Accounted(state fwk.CycleState) bool {
	_, err := state.Read(accountedKey)
	return err == nil
}
