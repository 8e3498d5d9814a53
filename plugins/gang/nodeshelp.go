package gang

import (
	"fmt"
	"slices"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// Whether more nodes would help a gang that does not fit. Autoscalers add nodes for pods whose reason is Unschedulable:
// a gang that more nodes would help has this reason, and no other gang does.

// setNodesHelpReason gives a gang that was tried and does not fit another reason than Unschedulable where nodes would
// not help: room is being made for it, it waits for a Reservation, or its queue would not let it have them.
func (pl *Gang) setNodesHelpReason(e *gangstate.Explanation) {
	switch {
	case pl.holds.Nominated(pl.gangs.Holder(e.Group)):
		e.Reason, e.Message = v1alpha1.ReasonPreemptionInProgress,
			fmt.Sprintf("gang %q waits for pods to end that make room for it", e.Gang)
	case slices.ContainsFunc(e.Pending, pl.reserved.AwaitsReservation):
		e.Reason = v1alpha1.ReasonAwaitingReservation
	default:
		if limit := pl.turns.Limits(e.Pending); limit.Reason != "" {
			e.Reason, e.Message = string(limit.Reason), limit.Message
		}
	}
	if e.Reason != v1alpha1.ReasonUnschedulable {
		e.Topology, e.Leader = "", ""
	}
}
