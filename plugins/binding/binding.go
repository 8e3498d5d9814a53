// Package binding is what plugins and the binder have to tell each other in the cycle of a pod.
//
// A plugin writes on a pod in the very call that binds it: what is written is there if the pod is
// bound, and not otherwise, and it costs no call of its own. The binder tells of a pod that is gone
// before it was known whether it was bound.
package binding

import (
	"maps"

	fwk "k8s.io/kube-scheduler/framework"
)

const key fwk.StateKey = "lockstep.dev/Binding"

// notes are annotations. They are replaced, never changed.
type notes map[string]string

// Clone shares them.
func (n notes) Clone() fwk.StateData { return n }

// Annotate has the pod of a cycle get an annotation when it is bound. It is for plugins that come
// before the binder, and a binder that asks for Annotations.
func Annotate(state fwk.CycleState, name, value string) {
	all := maps.Clone(notes(Annotations(state)))
	if all == nil {
		all = notes{}
	}
	all[name] = value
	state.Write(key, all)
}

// Annotations returns what the pod of a cycle is to get; nil for nothing.
func Annotations(state fwk.CycleState) map[string]string {
	data, err := state.Read(key)
	if err != nil {
		return nil // nobody wants any
	}
	n, _ := data.(notes)
	return n
}

const openKey fwk.StateKey = "lockstep.dev/BindingLeftOpen"

type open struct{}

func (o open) Clone() fwk.StateData { return o }

// LeaveOpen tells that the pod is gone and nobody will know whether it was bound before: an answer was lost.
func LeaveOpen(state fwk.CycleState) { state.Write(openKey, open{}) }

// LeftOpen reports whether that was told: the pod may have run.
func LeftOpen(state fwk.CycleState) bool {
	_, err := state.Read(openKey)
	return err == nil // nothing else is returned where nothing was written
}
