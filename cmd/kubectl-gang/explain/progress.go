package explain

import (
	"strings"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// byReason is how far a gang has come that has not begun, by its reason. Reasons of queues all begin alike.
var byReason = map[string]string{
	v1alpha1.ReasonGangIncomplete:       "gathering",
	v1alpha1.ReasonGangUndefined:        "undefined",
	v1alpha1.ReasonGangUnsupported:      "unsupported",
	v1alpha1.ReasonUnschedulable:        "waiting for room",
	v1alpha1.ReasonPreemptionInProgress: "preempting",
	v1alpha1.ReasonAwaitingReservation:  "waiting for a Reservation",
	v1alpha1.ReasonMemberRejected:       "rejected",
	v1alpha1.ReasonTimedOut:             "timed out",
	v1alpha1.ReasonEvicted:              "evicted",
}

// stands returns how far a gang has come, in a word or two: its phase does not distinguish what it waits for.
func stands(g *view.Gang) string {
	switch g.Phase {
	case "Finished", "Failed":
		return "ended"
	case "Running", "Scheduled":
		return "bound"
	}
	word, known := byReason[g.Reason]
	switch {
	case g.Held > 0 && g.Reason != v1alpha1.ReasonPreemptionInProgress && g.Reason != v1alpha1.ReasonTimedOut:
		return "held" // room is kept for some of it
	case known:
		return word
	case strings.HasPrefix(g.Reason, "Queue"):
		return "queued"
	default:
		return "planning"
	}
}
