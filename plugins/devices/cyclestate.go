package devices

import fwk "k8s.io/kube-scheduler/framework"

// accounted is the mark of a cycle state by whose maker devices are taken account of.
type accounted struct{}

// Clone returns the same.
func (accounted) Clone() fwk.StateData { return accounted{} }

const accountedKey fwk.StateKey = "lockstep.dev/devices"

// Account notes in a cycle state that its maker takes account of devices itself, those that are held for others included.
func Account(state fwk.CycleState) { state.Write(accountedKey, accounted{}) }

// Accounted reports whether Account was called with a cycle state, or one of which it is a clone.
func Accounted(state fwk.CycleState) bool {
	_, err := state.Read(accountedKey)
	return err == nil
}
