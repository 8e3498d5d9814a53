package waitreason

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
)

// TestReasons: what each reason means.
func TestReasons(t *testing.T) {
	type answers struct{ helps, useless, noPlace, passes bool }
	for reason, want := range map[string]answers{
		v1alpha1.ReasonUnschedulable:        {helps: true, noPlace: true}, // also of a queue that has its share
		string(queueing.Behind):             {helps: true, passes: true},
		v1alpha1.ReasonMemberRejected:       {useless: true, noPlace: true},
		v1alpha1.ReasonAwaitingReservation:  {useless: true, noPlace: true},
		v1alpha1.ReasonGangIncomplete:       {useless: true},
		v1alpha1.ReasonGangUnsupported:      {useless: true},
		v1alpha1.ReasonGangUndefined:        {useless: true},
		v1alpha1.ReasonTimedOut:             {useless: true},
		v1.PodReasonSchedulingGated:         {useless: true},
		string(queueing.NotFound):           {useless: true},
		string(queueing.ParentMissing):      {useless: true},
		string(queueing.Invalid):            {useless: true},
		string(queueing.Closed):             {useless: true},
		string(queueing.Capability):         {useless: true},
		string(queueing.Passed):             {passes: true},
		string(queueing.Turn):               {passes: true},
		string(queueing.Unread):             {},
		v1alpha1.ReasonAwaitingPlacement:    {},
		v1alpha1.ReasonPreemptionInProgress: {passes: true}, // the room is being made
		v1alpha1.ReasonPlacementFailed:      {},             // there was room
		v1.PodReasonSchedulerError:          {},
		"":                                  {},
	} {
		if got := (answers{RoomHelps(reason), RoomIsUseless(reason), FoundNoPlace(reason), PassesByItself(reason)}); got != want {
			t.Errorf("%s: %+v, want %+v", reason, got, want)
		}
	}
}
