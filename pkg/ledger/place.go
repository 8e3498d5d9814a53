package ledger

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Place is where a pending pod will go; the zero value if unknown.
type Place struct {
	Node string
	// Planned: the place is the pod's own, by the plan of its gang. Otherwise the node is nominated.
	Planned bool
}

// Nominated reports whether a node is nominated to the pod.
func (p Place) Nominated() bool { return p.Node != "" && !p.Planned }

// Place returns where a pod will go by what is held for it. If nothing is held, its status may tell; see PlaceInStatus.
func (h *Shared) Place(pod types.UID) (Place, bool) {
	one, held := h.HoldOf(pod)
	return Place{Node: one.Node, Planned: held && one.Reason != hold.Nomination}, held
}

// PlaceInStatus returns where a pod will go by its status. It counts only if nothing is held for the pod, since
// statuses come late. The status has nominations that the ledger does not have yet, and those of other plugins.
func PlaceInStatus(pod *v1.Pod) Place { return Place{Node: pod.Status.NominatedNodeName} }
