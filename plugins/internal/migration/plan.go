package migration

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

const (
	// checkAgain is how often it is looked whether a plan that awaits approval would still lead to its goal: one that would
	// not is in the way of another.
	checkAgain = time.Minute
	// doubtAgain is how soon the goal is looked at again that is said not to start.
	doubtAgain = time.Second
	// reserveWithin is how long the targets that have room already may take to be reserved. No pod is evicted before.
	reserveWithin = 5 * time.Minute
	// defaultHoldTime, defaultEvictions are the defaults of the schema, for plans to which the API server did not add them.
	defaultHoldTime  = 10 * time.Minute
	defaultEvictions = 4
)

// Waiting is whether the goal of a plan, a gang or a pod, still waits.
type Waiting int

const (
	// Waits: it does. So does a goal that is no gang and no pod.
	Waits Waiting = iota
	// Runs: it has got nodes.
	Runs
	// Gone: there is no gang or pod of that name any more.
	Gone
	// Renewed: it waits, but it was deleted and made again since the plan was made.
	Renewed
)

// Move is what is known of the PodMigration of a move.
type Move struct {
	Phase v1alpha1.MigrationPhase
	// Suspended, Reserved, Evicted are as its spec and its conditions say.
	Suspended, Reserved, Evicted bool
	// Evicting: its pod is evicted in a moment, and its target is open to the successor.
	Evicting bool
	// Went: its pod was deleted, but not by its migration; a successor is awaited, or has come.
	Went bool
	// Gone: it failed, since its pod was deleted by something else; its room is free all the same. Leaving: the pod is being deleted.
	Gone, Leaving bool
	// Why is why it failed.
	Why string
}

// cleared reports whether the pod has left its node, and a successor, if there is to be one, has its place.
func (m *Move) cleared() bool { return m.Phase == v1alpha1.MigrationSucceeded || m.Gone }

// wants reports whether the target has to be reserved before any pod is evicted.
func (m *Move) wants() bool { return !m.Reserved && !m.begun() && !m.Leaving }

// begun reports whether a pod may have been evicted for it.
func (m *Move) begun() bool {
	return m.Evicted || m.Phase == v1alpha1.MigrationRunning || m.Phase == v1alpha1.MigrationSucceeded
}

// let reports whether a pod has been evicted for it, or may be at any time: what is read of it may be old by then.
func (m *Move) let() bool { return m.begun() || !m.Suspended && !Ended(m.Phase) }

// Hold is a Reservation of what is freed.
type Hold struct {
	Available, Used bool
	// Why is why it is not available.
	Why string
}

// PlanSeen is what the status of a plan follows from, beside the plan itself.
type PlanSeen struct {
	Goal Waiting
	// Moves are those of which there is a PodMigration, by index.
	Moves map[int]*Move
	// Holds are those that there are, of so many that there are to be.
	Holds []Hold
	Wants int
	// Checked: it was looked whether the nodes have the room that the plan counts on, and no more pods start anew than it shows. Short
	// says which node lacks what, or why more would; empty for neither.
	Checked bool
	Short   string
	// Doubt is why the goal would not start, as its scheduler says now. It may pass: no move begins meanwhile. Empty for none.
	Doubt string
	// Looked: it is known whether the goal would start, and whether the nodes that are freed take pods. Unfit is why not; empty if so.
	Looked bool
	Unfit  string
	// Fits is how many gangs of the shape fit now; nil if they have not been counted.
	Fits *int32
}

// PlanStep is what follows. Where the status differs from what it is, it has to be written before anything is done.
type PlanStep struct {
	Status v1alpha1.DefragmentationPlanStatus
	// Hold: what is freed is to be held for the goal. Release: it is not, any more.
	Hold, Release bool
	// Make are the moves that need a PodMigration, Resume those that are not to be suspended any longer, Suspend those that are to be
	// again, Cancel those that are to be given up: no pod was evicted for them.
	Make, Resume, Suspend, Cancel []int
	// Check: it is to be looked whether the nodes have the room that the plan counts on, and no more pods start anew than it shows: once
	// in a while as long as it is not approved, before anything is reserved, and again before the first pod is evicted.
	Check bool
	// Look: it is to be looked whether the goal would start, and the nodes that are freed take pods: before each pod that is evicted
	// after the first, and as long as one is let go whose turn has not come.
	Look bool
	// Count: all is done, and it is to be counted how many gangs of the shape fit now.
	Count bool
	// Again is when to look again though nothing happens; the zero time for never.
	Again time.Time
}

// PlanEnded reports whether a phase is final.
func PlanEnded(phase v1alpha1.DefragmentationPhase) bool {
	return phase == v1alpha1.DefragmentationSucceeded || phase == v1alpha1.DefragmentationFailed
}

// NextPlan returns what follows for a plan.
func NextPlan(p *v1alpha1.DefragmentationPlan, seen PlanSeen, now time.Time) PlanStep {
	s := &planStep{p: p, seen: seen, now: now}
	p.Status.DeepCopyInto(&s.out.Status)
	found := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.DefragmentationFound)
	switch {
	case PlanEnded(p.Status.Phase):
		s.out.Release, s.out.Cancel = true, s.open()
	case p.DeletionTimestamp != nil && p.Status.Phase != v1alpha1.DefragmentationRunning:
		s.end(v1alpha1.DefragmentationFailed, v1alpha1.DefragmentationReasonCancelled, "it is being deleted")
	case p.Status.Phase == v1alpha1.DefragmentationRunning:
		s.running()
	case found == nil:
		s.out.Status.Phase = v1alpha1.DefragmentationPending
	case found.Status != metav1.ConditionTrue:
		s.end(v1alpha1.DefragmentationFailed, found.Reason, found.Message)
	case len(p.Status.Moves) == 0:
		s.end(v1alpha1.DefragmentationSucceeded, found.Reason, found.Message)
	default:
		s.planned()
	}
	return s.out
}

// planStep is a PlanStep that is being worked out.
type planStep struct {
	p    *v1alpha1.DefragmentationPlan
	seen PlanSeen
	now  time.Time
	out  PlanStep
}

// planned is from when the moves are known.
func (s *planStep) planned() {
	s.out.Status.Phase = v1alpha1.DefragmentationPlanned
	switch {
	case s.outdated():
	case s.seen.Doubt != "":
		s.out.Again = s.now.Add(doubtAgain)
	case !s.seen.Checked:
		s.out.Check = true
	case s.seen.Short != "":
		s.short()
	case s.p.Spec.Mode != v1alpha1.DefragmentationExecute && !s.p.Spec.Approved:
		s.set(v1alpha1.DefragmentationReasonAwaitingApproval, "set spec.approved to true to have it carried out just as it is shown")
		s.out.Again = s.now.Add(checkAgain)
	default:
		s.out.Status.Phase, s.out.Status.StartTime = v1alpha1.DefragmentationRunning, seconds(s.now)
		s.set(v1alpha1.DefragmentationReasonReserving, reservingText)
	}
}

// outdated ends a plan whose goal does not wait any more.
func (s *planStep) outdated() bool {
	if s.seen.Goal != Waits {
		s.end(v1alpha1.DefragmentationFailed, v1alpha1.DefragmentationReasonOutdated, s.goal())
	}
	return s.seen.Goal != Waits
}

// goal returns what became of a goal that does not wait as it did.
func (s *planStep) goal() string {
	switch s.seen.Goal {
	case Runs:
		return s.out.Status.Goal + " does not wait any more: it has got nodes"
	case Gone:
		return s.out.Status.Goal + " is gone"
	default:
		return s.out.Status.Goal + " has been made anew since the plan was made, and may ask for something else"
	}
}

// phase returns how far a move has come.
func (s *planStep) phase(move int) v1alpha1.MigrationPhase {
	if m := s.seen.Moves[move]; m != nil {
		return cmp.Or(m.Phase, v1alpha1.MigrationPending)
	}
	return s.p.Status.Moves[move].Phase
}

// cleared reports whether the pod of a move has left its node, and a successor, if there is to be one, has its place.
func (s *planStep) cleared(move int) bool {
	if m := s.seen.Moves[move]; m != nil {
		return m.cleared()
	}
	return s.p.Status.Moves[move].Phase == v1alpha1.MigrationSucceeded
}

// running is while it is carried out.
func (s *planStep) running() {
	c := s.count()
	s.out.Status.MovedCount = int32(c.moved)
	switch moves := len(s.p.Status.Moves); {
	case c.cleared == moves && (c.begun || s.p.Status.HeldTime != nil || s.seen.Checked && s.seen.Short == ""):
		s.done(moves - c.moved)
	case s.stopped() != nil || len(c.failed) > 0 || s.p.DeletionTimestamp != nil:
		s.stop(c, c.failed)
	case s.seen.Goal == Gone && c.begun && c.underway > 0: // it may be about to be made anew
		s.out.Hold, s.out.Suspend = true, s.idle()
		s.set(v1alpha1.DefragmentationReasonMoving, fmt.Sprintf("%s; %d moves under way are awaited, and no more begin unless it is made anew", s.goal(), c.underway))
	case !s.waits(c.begun):
		s.stop(c, nil)
	case !c.begun && !s.reserved():
		s.reserving()
	case !c.begun && s.seen.Doubt != "":
		s.out.Hold, s.out.Again = true, s.now.Add(doubtAgain)
		s.set(v1alpha1.DefragmentationReasonReserving, "no pod is evicted as long as this is so: "+s.seen.Doubt)
	case !c.begun && !s.seen.Checked:
		s.out.Hold, s.out.Check = true, true
		s.set(v1alpha1.DefragmentationReasonReserving, reservingText)
	case !c.begun && s.seen.Short != "":
		s.short()
	default:
		s.moving(c)
	}
}

// waits reports whether the goal still waits. Once a pod was evicted for it, it may be deleted and made again.
func (s *planStep) waits(begun bool) bool {
	return s.seen.Goal == Waits || s.seen.Goal == Renewed && begun
}

// short ends a plan that would not lead to its goal.
func (s *planStep) short() {
	s.end(v1alpha1.DefragmentationFailed, v1alpha1.DefragmentationReasonOutdated, "the cluster is not as it was when the plan was made, and no pod was evicted: "+s.seen.Short)
}

// counted is how far the moves of a plan have come.
type counted struct {
	// begun: a pod may have been evicted, or may be at any time.
	begun                    bool
	moved, cleared, underway int
	// failed are those that were not done, each with its why.
	failed []string
}

// count takes in how far the moves have come.
func (s *planStep) count() (c counted) {
	for i := range s.out.Status.Moves {
		move, m := &s.out.Status.Moves[i], s.seen.Moves[i]
		before := move.Phase
		move.Phase = s.phase(i)
		name := move.Namespace + "/" + move.PodName
		switch {
		case s.cleared(i):
			c.cleared++
			if move.Phase == v1alpha1.MigrationSucceeded {
				c.moved++
			}
		case m != nil && m.Leaving:
			c.underway++
		case move.Phase == v1alpha1.MigrationFailed && m != nil:
			c.failed = append(c.failed, name+": "+m.Why)
		case move.Phase == v1alpha1.MigrationFailed:
			c.failed = append(c.failed, name)
		case m == nil && before != "":
			c.failed = append(c.failed, name+": its PodMigration is gone")
		case m != nil && m.let():
			c.underway++
		}
		c.begun = c.begun || m != nil && m.let() && !m.Went || m == nil && move.Phase == v1alpha1.MigrationSucceeded
	}
	return c
}

// missing are the moves without a PodMigration. Those that come after others get theirs once those are reserved that do
// not: what is promised to them might be in the way of these.
func (s *planStep) missing() (list []int) {
	reserved := s.targetsReserved()
	for i := range s.p.Status.Moves {
		if s.seen.Moves[i] == nil && s.p.Status.Moves[i].Phase == "" && (reserved || len(s.p.Status.Moves[i].After) == 0) {
			list = append(list, i)
		}
	}
	return list
}

// open are the moves that have not come to an end.
func (s *planStep) open() (list []int) {
	for i := range s.p.Status.Moves {
		if m := s.seen.Moves[i]; m != nil && !Ended(m.Phase) && !m.begun() {
			list = append(list, i)
		}
	}
	return list
}

// reserved reports whether all targets are reserved that have room from the beginning, and all that is to be freed
// is promised.
func (s *planStep) reserved() bool {
	return s.targetsReserved() && len(s.seen.Holds) >= s.seen.Wants
}

func (s *planStep) targetsReserved() bool {
	for i, move := range s.p.Status.Moves {
		if m := s.seen.Moves[i]; len(move.After) == 0 && !s.cleared(i) && (m == nil || m.wants()) {
			return false
		}
	}
	return true
}

const reservingText = "the targets are being reserved; no pod is evicted before all are that have room"

func (s *planStep) reserving() {
	s.out.Hold, s.out.Make = true, s.missing()
	s.set(v1alpha1.DefragmentationReasonReserving, reservingText)
	end := s.now.Add(reserveWithin)
	if start := s.p.Status.StartTime; start != nil {
		end = start.Add(reserveWithin)
	}
	if s.out.Again = end; s.now.Before(end) {
		return
	}
	var waiting []string
	for i, move := range s.p.Status.Moves {
		if m := s.seen.Moves[i]; len(move.After) == 0 && !s.cleared(i) && (m == nil || m.wants()) {
			waiting = append(waiting, fmt.Sprintf("%s/%s to %s", move.Namespace, move.PodName, move.TargetNode))
		}
	}
	s.end(v1alpha1.DefragmentationFailed, v1alpha1.DefragmentationReasonMoveFailed,
		fmt.Sprintf("not all targets could be reserved within %s, and no pod was evicted: %s", reserveWithin, strings.Join(waiting, ", ")))
}

// stop has no more moves begin, and ends the plan once none is under way. Why it stops is said, and known, from then on.
func (s *planStep) stop(c counted, failed []string) {
	reason, why := v1alpha1.DefragmentationReasonMoveFailed, strings.Join(failed, "; ")
	switch was := s.stopped(); {
	case was != nil:
		reason, why = was.Reason, was.Message
	case s.p.DeletionTimestamp != nil:
		reason, why = v1alpha1.DefragmentationReasonCancelled, "it is being deleted"
	case !s.waits(c.begun):
		reason, why = v1alpha1.DefragmentationReasonOutdated, s.goal()
	}
	if s.out.Cancel = s.open(); c.underway == 0 {
		s.end(v1alpha1.DefragmentationFailed, reason, why)
		return
	}
	s.out.Hold = true
	s.set(reason, why)
}

// stopped is why no more moves begin of a plan that is still carried out; nil where they do.
func (s *planStep) stopped() *metav1.Condition {
	c := meta.FindStatusCondition(s.p.Status.Conditions, v1alpha1.DefragmentationComplete)
	if c != nil && slices.Contains([]string{v1alpha1.DefragmentationReasonMoveFailed, v1alpha1.DefragmentationReasonOutdated, v1alpha1.DefragmentationReasonCancelled}, c.Reason) {
		return c
	}
	return nil
}

// done is from when all moves are done, but for those whose pods had gone.
func (s *planStep) done(gone int) {
	status := &s.out.Status
	moved := "all pods are moved"
	if gone > 0 {
		moved = fmt.Sprintf("%d of %d pods are moved, and %d had gone by themselves", status.MovedCount, len(status.Moves), gone)
	}
	switch {
	case s.p.Spec.Goal.Shape != nil && s.seen.Fits == nil:
		s.out.Count = true
		return
	case s.p.Spec.Goal.Shape != nil && status.Predicted != nil:
		status.Achieved = &v1alpha1.GangCapacity{Before: status.Predicted.Before, After: *s.seen.Fits}
	}
	if s.seen.Wants == 0 {
		s.end(v1alpha1.DefragmentationSucceeded, v1alpha1.DefragmentationReasonDone, moved)
		return
	}
	if status.HeldTime == nil {
		status.HeldTime = seconds(s.now)
	}
	available, used, why := 0, 0, ""
	for _, h := range s.seen.Holds {
		switch {
		case h.Used:
			used++
		case h.Available:
			available++
		default:
			why = cmp.Or(why, h.Why)
		}
	}
	if available+used == s.seen.Wants && status.Achieved == nil && status.Predicted != nil {
		status.Achieved = &v1alpha1.GangCapacity{Before: status.Predicted.Before, After: status.Predicted.Before + 1}
	}
	hold := defaultHoldTime
	if t := s.p.Spec.HoldTime; t != nil {
		hold = t.Duration
	}
	end := status.HeldTime.Add(hold)
	switch {
	case s.seen.Goal == Runs || used == s.seen.Wants:
		s.end(v1alpha1.DefragmentationSucceeded, v1alpha1.DefragmentationReasonUsed, s.out.Status.Goal+" has got nodes")
	case s.p.DeletionTimestamp != nil:
		s.end(v1alpha1.DefragmentationFailed, v1alpha1.DefragmentationReasonCancelled, moved+"; it is being deleted, and what was freed is not held any more")
	case s.now.Before(end):
		s.out.Hold, s.out.Again = true, end
		text := fmt.Sprintf("%s; what was freed is held for %s until %s", moved, s.out.Status.Goal, end.UTC().Format(time.RFC3339))
		if why != "" {
			text += ": " + why
		}
		s.set(v1alpha1.DefragmentationReasonHeld, text)
	default:
		s.end(v1alpha1.DefragmentationSucceeded, v1alpha1.DefragmentationReasonUnused, fmt.Sprintf("what was freed was held for %s, and %s did not use it", hold, s.out.Status.Goal))
	}
}

// end ends it.
func (s *planStep) end(phase v1alpha1.DefragmentationPhase, reason, message string) {
	status := s.out.Status
	status.Phase, status.EndTime = phase, seconds(s.now)
	s.out = PlanStep{Status: status}
	is := metav1.ConditionFalse
	if phase == v1alpha1.DefragmentationSucceeded {
		is = metav1.ConditionTrue
	}
	s.complete(is, reason, message)
}

func (s *planStep) set(reason, message string) { s.complete(metav1.ConditionFalse, reason, message) }

func (s *planStep) complete(is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.out.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DefragmentationComplete, Status: is, Reason: reason, Message: clip(message), ObservedGeneration: s.p.Generation, LastTransitionTime: *seconds(s.now),
	})
}
