// Package binding is what plugins and the binder tell each other in the cycle of a pod.
//
// A plugin writes on a pod in the very call that binds it: what it writes is there if the pod is
// bound, and not otherwise, and it costs no call of its own. The binder reports a pod that was deleted
// before it was known whether it was bound.
package binding

import (
	"errors"
	"maps"
	"slices"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/cyclestate"
)

// ErrDeleted is why a pod was not bound that was deleted before.
var ErrDeleted = errors.New("pod was deleted")

const key fwk.StateKey = "lockstep.dev/Binding"

// notes are annotations. They are replaced, never changed.
type notes map[string]string

// Clone returns the same annotations.
func (n notes) Clone() fwk.StateData { return n }

// Annotate gives the pod of a cycle an annotation when it is bound. It works for plugins that come
// before the binder, with a binder that reads Annotations.
func Annotate(state fwk.CycleState, name, value string) {
	all := maps.Clone(notes(Annotations(state)))
	if all == nil {
		all = notes{}
	}
	all[name] = value
	state.Write(key, all)
}

// Binder is a bind plugin that reads Annotations, and the bind plugins that pass on to it all pods that they get.
type Binder struct {
	Name   string
	PassOn []string
}

// Binds returns a function that reports whether the binder binds the pods of a profile: nothing else does before it. It
// may be called once all plugins of the profile are made.
func (b Binder) Binds(fw framework.Framework) func() bool {
	return sync.OnceValue(func() bool {
		binders := fw.ListPlugins().Bind.Enabled
		i := slices.IndexFunc(binders, func(p schedconfig.Plugin) bool { return !slices.Contains(b.PassOn, p.Name) })
		return i >= 0 && binders[i].Name == b.Name && !slices.ContainsFunc(fw.Extenders(), fwk.Extender.IsBinder)
	})
}

// Annotations returns the annotations that the pod of a cycle gets when it is bound; nil for none.
func Annotations(state fwk.CycleState) map[string]string {
	return cyclestate.Read[notes](state, key)
}

const openKey fwk.StateKey = "lockstep.dev/BindingLeftOpen"

type open struct{}

func (o open) Clone() fwk.StateData { return o }

// LeaveOpen records that the pod is gone and it will never be known whether it was bound before: an answer was lost.
func LeaveOpen(state fwk.CycleState) { state.Write(openKey, open{}) }

// LeftOpen reports whether that was recorded: the pod may have run.
func LeftOpen(state fwk.CycleState) bool {
	_, err := state.Read(openKey)
	return err == nil // nothing else is returned where nothing was written
}
