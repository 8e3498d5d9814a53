package holds

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

const grantKey fwk.StateKey = "lockstep.dev/Grant"

// grant is in the cycle state of a pod, or of a question about one, for which somebody knows
// more than that it is a pod by itself.
type grant struct{ holders []hold.Holder }

// Clone shares the grant, which never changes.
func (g *grant) Clone() fwk.StateData { return g }

// Grant has what these holders have be no obstacle to the pod of a cycle, and nothing else. It
// is for PreFilter plugins that come before HeldCapacity.
func Grant(state fwk.CycleState, holders ...hold.Holder) { state.Write(grantKey, &grant{holders}) }

// Granted returns the holders whose holds are no obstacle to the pod of a cycle. Where nobody
// has granted anything that is the pod itself.
func Granted(state fwk.CycleState, pod *v1.Pod) []hold.Holder {
	if data, err := state.Read(grantKey); err == nil {
		if g, ok := data.(*grant); ok {
			return g.holders
		}
	}
	return []hold.Holder{{Profile: pod.Spec.SchedulerName, Group: hold.SinglePod(pod.UID)}}
}
