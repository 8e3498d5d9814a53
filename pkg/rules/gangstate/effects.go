package gangstate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
)

// Effects is what the caller has to do after an input, in this order. All of it may be done late,
// none of it may be left out. Release, Reject and Activate are repeated until they have an effect:
// done twice they do no harm.
type Effects struct {
	// Unhold: these members no longer need the capacity that is held for them.
	Unhold []types.UID
	// Release: these held members may bind.
	Release []types.UID
	// Reject: these held members have to give back their node.
	Reject []types.UID
	// Expire: mark these pods with the timeout annotation.
	Expire []*v1.Pod
	// Activate: the queue should look at these pods again.
	Activate []*v1.Pod
	// Problems are values that could not be used, each reported once.
	Problems []Report
	// Changed are the gangs about which there may be something new to report, or of whose group, if it has their name,
	// [Gangs.Turn] may say something else now.
	Changed sets.Set[gangspec.Key]
	// Rehold: these members waited at the barrier for longer than the framework lets them. They
	// keep their place in the plan; hold it before anything else.
	Rehold []Hold
	// Started: the minimum of a gang was bound this long after it was complete.
	Started []time.Duration
	// RoundsFailed counts rounds that failed although a plan stood.
	RoundsFailed int
	// Freed: capacity was given back.
	Freed bool
	// Missed are the attempts that did not place all.
	Missed []Missed
}

// Missed is what an attempt has found that did not place all of its group.
type Missed struct {
	Group string
	turns.AttemptFailure
	// RoomFor is what room is made for, if that is not the group; empty for the group.
	RoomFor string
}

// Hold is the place of a member in a plan.
type Hold struct {
	Pod    *v1.Pod
	Node   string
	Holder string
}

// Report is a problem and the pod or PodGroup that has it. Pod is nil if the PodGroup has it.
type Report struct {
	Gang    gangspec.Key
	Pod     *v1.Pod
	Object  gangspec.Ref // the PodGroup
	Problem gangspec.KeyProblem
}
