// Package binding lets a plugin write on a pod in the very call that binds it: what is written is
// there if the pod is bound, and not otherwise, and it costs no call of its own.
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
