package ledger

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Granter is a plugin that knows of capacity held for pods, such as that of a Reservation.
type Granter interface {
	// Grants returns further holders whose holds a pod may use.
	Grants(pod *v1.Pod) []hold.Holder
}

// Dependent is a plugin, besides HeldCapacity, that refuses pods for held capacity: they may fit when a hold ends.
type Dependent interface{ DependsOnHolds() }

// GrantedBy returns what plugins grant to a pod, sorted.
func GrantedBy(granters []Granter, pod *v1.Pod) []hold.Holder {
	var holders []hold.Holder
	for _, plugin := range granters {
		holders = append(holders, plugin.Grants(pod)...)
	}
	slices.SortFunc(holders, hold.Holder.Compare)
	return slices.Compact(holders)
}

const grantKey fwk.StateKey = "lockstep.dev/Grant"

// grant is in the cycle state of a pod, or of a simulation of one, if a plugin has granted other holds than the pod's
// own.
type grant struct{ holders []hold.Holder }

// Clone shares the grant, which never changes.
func (g *grant) Clone() fwk.StateData { return g }

// Grant lets the pod of a cycle use the holds of exactly these holders, beside those that a Granter grants. It is for
// PreFilter plugins that run before HeldCapacity.
func Grant(state fwk.CycleState, holders ...hold.Holder) { state.Write(grantKey, &grant{holders}) }

// Granted returns the holders whose holds the pod of a cycle may use, by its state; without a grant, that is the pod
// itself.
func Granted(state fwk.CycleState, pod *v1.Pod) []hold.Holder {
	if data, err := state.Read(grantKey); err == nil {
		if g, ok := data.(*grant); ok {
			return g.holders
		}
	}
	return []hold.Holder{{Profile: pod.Spec.SchedulerName, Group: hold.SinglePod(pod.UID)}}
}
