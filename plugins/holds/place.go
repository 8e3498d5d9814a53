package holds

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// Place is where a waiting pod is to go; the zero value means that this is not known.
type Place struct {
	Node string
	// Planned: the place is the pod's own, by the plan of its gang. Otherwise the node was
	// nominated to it.
	Planned bool
}

// Nominated reports whether a node was nominated to the pod.
func (p Place) Nominated() bool { return p.Node != "" && !p.Planned }

// Place returns where a pod is to go by what is held for it. Where nothing is held, its status may show
// it: see Stated.
func (h *Holds) Place(pod types.UID) (Place, bool) {
	one, held := h.Of(pod)
	return Place{Node: one.Node, Planned: held && one.Reason != hold.Nomination}, held
}

// Stated returns where a pod is to go by its status, which counts only where nothing is held for
// the pod: statuses come late. The status has nominations that the ledger does not have yet, and those
// by plugins that have no part in it.
func Stated(pod *v1.Pod) Place { return Place{Node: pod.Status.NominatedNodeName} }
