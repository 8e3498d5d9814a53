package holds

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// Granter is a plugin that knows what is held for pods, independently of others: a reservation, say.
type Granter interface {
	// Grants returns further holders whose holds are no obstacle to a pod.
	Grants(pod *v1.Pod) []hold.Holder
}

// Dependent is a plugin that refuses pods for what is held, beside HeldCapacity: they may fit where a hold ends.
type Dependent interface{ DependsOnHolds() }

// GrantedBy returns what plugins grant to a pod, in order.
func GrantedBy(granters []Granter, pod *v1.Pod) []hold.Holder {
	var holders []hold.Holder
	for _, plugin := range granters {
		holders = append(holders, plugin.Grants(pod)...)
	}
	slices.SortFunc(holders, hold.Holder.Compare)
	return slices.Compact(holders)
}

const grantKey fwk.StateKey = "lockstep.dev/Grant"

// grant is in the cycle state of a pod, or of a question about one, where a plugin has granted
// something else than what is held for the pod itself.
type grant struct{ holders []hold.Holder }

// Clone returns the same grant, which never changes.
func (g *grant) Clone() fwk.StateData { return g }

// Grant makes the holds of these holders no obstacle to the pod of a cycle, and no others but
// those that a Granter grants. It is for PreFilter plugins that come before HeldCapacity.
func Grant(state fwk.CycleState, holders ...hold.Holder) { state.Write(grantKey, &grant{holders}) }

// Granted returns the holders whose holds are no obstacle to the pod of a cycle, as far as its
// state shows. Where nothing was granted, that is the pod itself.
func Granted(state fwk.CycleState, pod *v1.Pod) []hold.Holder {
	if data, err := state.Read(grantKey); err == nil {
		if g, ok := data.(*grant); ok {
			return g.holders
		}
	}
	return []hold.Holder{{Profile: pod.Spec.SchedulerName, Group: hold.SinglePod(pod.UID)}}
}
