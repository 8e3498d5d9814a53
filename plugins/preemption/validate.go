package preemption

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// preemptorNeeds reports whether a preemptor still needs the capacity: enough of its pods exist and still have the
// nominations of this decision, and the members placed before are still placed. A plan that found other places, or a
// preemptor of higher priority, ends that; so does a member that was taken for missing and now runs, if the preemptor
// would have replaced it.
func (e *execution) preemptorNeeds() bool {
	if want, waits := e.Gangs.Wants(e.d.leader); waits && want.Alone && want.Ready && !e.d.gang.Beyond {
		return false // its gang has its minimum without it
	}
	if holder := e.holder(e.d); !holder.IsSinglePod() && !e.Gangs.Placing(holder) || !e.placedUnchanged() {
		return false
	}
	there := 0
	for uid := range e.f.plan.Nodes {
		if pod, ok := e.evictor.Pod(uid); ok && pod.DeletionTimestamp == nil && e.isNominated(uid) {
			there++
		}
	}
	return there >= e.d.attempt.Members()
}

// placedUnchanged reports whether the members placed before the search are where they were: on their nodes, or with a
// plan that holds these. An incomplete NonStrict gang makes way for others that come before it.
func (e *execution) placedUnchanged() bool {
	for _, need := range e.d.attempt.Gangs {
		if need.Min == 0 || len(need.Placed) == 0 {
			continue
		}
		on := map[types.UID]string{}
		for _, running := range e.Gangs.Running(e.fw.ProfileName(), need.Key) {
			for _, one := range running.Running {
				on[one.Pod.UID] = one.Node
			}
		}
		for _, placed := range need.Placed {
			held, ok := e.Holds.HoldOf(placed.Pod.UID)
			if on[placed.Pod.UID] != placed.Node && !(ok && held.Reason == hold.Plan && held.Node == placed.Node) {
				return false
			}
		}
	}
	return true
}

// outdated returns why a decision no longer holds; empty if it does. Since it was made, members of gangs that should
// lose only surplus may have ended, and missing members may have come.
func (e *execution) outdated() string {
	if !e.preemptorNeeds() && e.Underway.NeededBy(e.f.victims) == nil {
		return "the preemptor no longer needs the capacity"
	}
	ending := e.Underway.AllVictims()
	for _, lost := range e.f.losses() {
		if lost.Kind == victim.Whole || len(lost.Gangs) == 0 {
			continue
		}
		together, err := e.evictor.Together(lost.Of)
		if err != nil {
			return err.Error()
		}
		if lost.Broken {
			if !slices.ContainsFunc(together, func(one gangstate.RunningGang) bool { return !one.Enough(nil) }) {
				return fmt.Sprintf("%s has its minimum again", lost.Name())
			}
			continue
		}
		for _, one := range together {
			if !one.Enough(ending) {
				return fmt.Sprintf("gang %s has lost members, and now needs those that were chosen", one.Key)
			}
		}
	}
	return ""
}
