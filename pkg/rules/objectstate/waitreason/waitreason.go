// Package waitreason says what the reasons mean for which pods wait, as the scheduler writes them into PodScheduled.
// Each question about a reason has one answer here. Reasons of PodGroups only, such as Evicted, are no reasons of pods.
package waitreason

import (
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// RoomHelps reports whether pods that wait for a reason would start if there was more room by now.
func RoomHelps(reason string) bool { return queueing.Reason(reason).RoomHelps() }

// RoomIsUseless reports whether pods that wait for a reason would not start, however much room there is: their gang,
// their queue, or something else has to change first. Of what passes without that, such as the turn of others, neither
// RoomHelps nor this is true.
func RoomIsUseless(reason string) bool {
	switch reason {
	case v1alpha1.ReasonMemberRejected, v1alpha1.ReasonAwaitingReservation, v1.PodReasonSchedulingGated,
		string(queueing.Capability):
		return true
	default:
		return v1alpha1.AsksForNothing(reason) || queueing.Reason(reason).Shut()
	}
}

// PassesByItself reports whether what pods wait for ends without anybody doing something: others have their turn, or
// make room.
func PassesByItself(reason string) bool {
	switch reason {
	case v1alpha1.ReasonPreemptionInProgress, string(queueing.Turn), string(queueing.Passed), string(queueing.Behind):
		return true
	default:
		return false
	}
}

// FoundNoPlace reports whether a reason says that the scheduler has looked for a place, and found none. More room would
// not always help then. A queue that has its share says the same as nodes that are full.
func FoundNoPlace(reason string) bool {
	switch reason {
	case v1alpha1.ReasonUnschedulable, v1alpha1.ReasonMemberRejected, v1alpha1.ReasonAwaitingReservation:
		return true
	default:
		return false
	}
}
