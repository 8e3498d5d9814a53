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
	"github.com/lockstep-sh/lockstep/pkg/util/times"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

const (
	// checkAgain is how often a plan that awaits approval is checked: one that no longer leads to its goal blocks others.
	checkAgain = time.Minute
	// doubtAgain is how soon to look again at a goal of which the scheduler says that it would not start.
	doubtAgain = time.Second
	// reserveWithin is how long reserving may take of the targets that have room from the beginning. No pod is evicted
	// before.
	reserveWithin = 5 * time.Minute
	// defaultHoldTime and defaultEvictions are the defaults of the schema, for plans without them.
	defaultHoldTime  = 10 * time.Minute
	defaultEvictions = 4
)

// Waiting is whether the goal of a plan, a gang or a pod, still waits.
type Waiting int

const (
	// Waits: it does. So does a goal that is neither gang nor pod.
	Waits Waiting = iota
	// Runs: it has got nodes.
	Runs
	// Gone: no gang or pod has its name.
	Gone
	// Renewed: it waits, but was deleted and created again since the plan was made.
	Renewed
)

// Move is the PodMigration of a move.
type Move struct {
	*v1alpha1.PodMigration
	// Gone: it failed, since its pod was deleted by something else; its room is free all the same. Leaving: the pod is
	// being deleted.
	Gone, Leaving bool
}

// condition returns one of its conditions; without content if it is not set.
func (m *Move) condition(kind string) metav1.Condition {
	if c := meta.FindStatusCondition(m.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// isCleared reports whether the pod has left its node, and its successor, if it gets one, has its place.
func (m *Move) isCleared() bool { return m.Status.Phase == v1alpha1.MigrationSucceeded || m.Gone }

// needsTarget reports whether its target must be reserved before any pod is evicted.
func (m *Move) needsTarget() bool {
	return m.condition(v1alpha1.MigrationReserved).Status != metav1.ConditionTrue && !m.mayBeEvicted() && !m.Leaving
}

// mayBeEvicted reports whether a pod may have been evicted for it: it is not while a PodDisruptionBudget is in the way.
func (m *Move) mayBeEvicted() bool {
	evicted := m.condition(v1alpha1.MigrationEvicted)
	return evicted.Status == metav1.ConditionTrue || m.Status.Phase == v1alpha1.MigrationSucceeded ||
		m.Status.Phase == v1alpha1.MigrationRunning && evicted.Reason != v1alpha1.MigrationReasonDisruptionBudget
}

// mayBegin reports whether its pod has been evicted, or may be at any time: what was read of it may be outdated.
func (m *Move) mayBegin() bool { return m.mayBeEvicted() || !m.Spec.Suspend && !Ended(m.Status.Phase) }

// podWasDeleted reports whether its pod was deleted, but not by its migration; a successor is awaited, or has come.
func (m *Move) podWasDeleted() bool {
	return m.condition(v1alpha1.MigrationEvicted).Reason == v1alpha1.MigrationReasonPodGone
}

// Hold is a Reservation of freed capacity.
type Hold struct {
	Available, Used bool
	// Why is why it is not Available.
	Why string
}

// PlanSeen is what the next status of a plan depends on, besides the plan.
type PlanSeen struct {
	Goal Waiting
	// Moves are those that have a PodMigration, by index.
	Moves map[int]*Move
	// Holds are the existing ones, Wants is how many the plan needs.
	Holds []Hold
	Wants int
	// Checked: it is known whether the plan still leads to its goal. Futile is why not; empty if it does.
	Checked bool
	Futile  string
	// Doubt is why the goal would not start, as its scheduler says now; empty for none. It may pass, and no move begins
	// meanwhile.
	Doubt string
	// Fits is how many gangs of the shape fit now; nil before they are counted.
	Fits *int32
}

// PlanStep is the next status, and what to do. A status that differs from the current one must be written first.
type PlanStep struct {
	Status v1alpha1.DefragmentationPlanStatus
	// Hold: reserve what is freed for the goal. Release: delete those Reservations.
	Hold, Release bool
	// Make are the moves to create a PodMigration for. Resume and Suspend are those whose PodMigration must be resumed, or
	// suspended again. Cancel are those to give up: no pod was evicted for them.
	Make, Resume, Suspend, Cancel []int
	// Check: find out what Checked says: repeatedly while approval is awaited, before anything is reserved, before each
	// eviction, and as long as a move may begin.
	Check bool
	// Begun: a pod may have been evicted for it, or may be at any time.
	Begun bool
	// Count: all moves are done; count how many gangs of the shape fit now.
	Count bool
	// Again is when to look again even if nothing happens; zero for never.
	Again time.Time
}

// PlanEnded reports whether a phase is final.
func PlanEnded(phase v1alpha1.DefragmentationPhase) bool {
	return phase == v1alpha1.DefragmentationSucceeded || phase == v1alpha1.DefragmentationFailed
}

// NextPlan returns the next step of a plan.
func NextPlan(p *v1alpha1.DefragmentationPlan, seen PlanSeen, now time.Time) PlanStep {
	s := &planStep{p: p, seen: seen, now: now}
	p.Status.DeepCopyInto(&s.out.Status)
	found := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.DefragmentationFound)
	switch {
	case PlanEnded(p.Status.Phase):
		s.out.Release, s.out.Cancel = true, s.cancellable()
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

// Unmade returns the status of a plan after the PodMigration of a move could not be made: the move has failed, and no
// more begin.
func Unmade(p *v1alpha1.DefragmentationPlan, move int, why string, now time.Time) v1alpha1.DefragmentationPlanStatus {
	s := &planStep{p: p, now: now}
	p.Status.DeepCopyInto(&s.out.Status)
	failed := &s.out.Status.Moves[move]
	failed.Phase = v1alpha1.MigrationFailed
	if s.stopped() == nil {
		s.set(v1alpha1.DefragmentationReasonMoveFailed, fmt.Sprintf("%s/%s: its PodMigration cannot be made: %s",
			failed.Namespace, failed.PodName, why))
	}
	return s.out.Status
}

// Unheld returns the status of a plan after what it frees could not be reserved: no more moves begin.
func Unheld(p *v1alpha1.DefragmentationPlan, why string, now time.Time) v1alpha1.DefragmentationPlanStatus {
	s := &planStep{p: p, now: now}
	p.Status.DeepCopyInto(&s.out.Status)
	if s.stopped() == nil {
		s.set(v1alpha1.DefragmentationReasonMoveFailed,
			"the Reservation of what is freed cannot be made: "+why)
	}
	return s.out.Status
}

// planStep is a PlanStep under construction.
type planStep struct {
	p    *v1alpha1.DefragmentationPlan
	seen PlanSeen
	now  time.Time
	out  PlanStep
}

// planned computes the step once the moves are known.
func (s *planStep) planned() {
	s.out.Status.Phase = v1alpha1.DefragmentationPlanned
	switch {
	case s.outdated():
	case s.seen.Doubt != "":
		s.out.Again = s.now.Add(doubtAgain)
	case !s.seen.Checked:
		s.out.Check = true
	case s.seen.Futile != "":
		s.endStale()
	case s.p.Spec.Mode != v1alpha1.DefragmentationExecute && !s.p.Spec.Approved:
		s.set(v1alpha1.DefragmentationReasonAwaitingApproval,
			fmt.Sprintf("to have it carried out just as it is shown: kubectl gang defrag %s --approve, "+
				"or set spec.approved to true",
				s.p.Name))
		s.out.Again = s.now.Add(checkAgain)
	default:
		s.out.Status.Phase, s.out.Status.StartTime = v1alpha1.DefragmentationRunning, times.Stored(s.now)
		s.set(v1alpha1.DefragmentationReasonReserving, reservingText)
	}
}

// outdated ends a plan whose goal no longer waits, and reports whether it did.
func (s *planStep) outdated() bool {
	if s.seen.Goal != Waits {
		s.end(v1alpha1.DefragmentationFailed, v1alpha1.DefragmentationReasonOutdated, s.goalText())
	}
	return s.seen.Goal != Waits
}

// goalText says what became of a goal that no longer waits as it did.
func (s *planStep) goalText() string {
	switch s.seen.Goal {
	case Runs:
		return s.out.Status.Goal + " no longer waits: it has nodes"
	case Gone:
		return s.out.Status.Goal + " is gone"
	default:
		return s.out.Status.Goal + " has been made anew since the plan was made, and may ask for something else"
	}
}

// phaseOf returns how far a move has come.
func (s *planStep) phaseOf(move int) v1alpha1.MigrationPhase {
	if m := s.seen.Moves[move]; m != nil {
		return cmp.Or(m.Status.Phase, v1alpha1.MigrationPending)
	}
	return s.p.Status.Moves[move].Phase
}

// isCleared reports whether the pod of a move has left its node, and its successor, if it gets one, has its place.
func (s *planStep) isCleared(move int) bool {
	if m := s.seen.Moves[move]; m != nil {
		return m.isCleared()
	}
	return s.p.Status.Moves[move].Phase == v1alpha1.MigrationSucceeded
}

// running computes the step while the plan is carried out.
func (s *planStep) running() {
	c := s.countMoves()
	s.out.Status.MovedCount, s.out.Begun = int32(c.moved), c.begun
	switch moves := len(s.p.Status.Moves); {
	case c.cleared == moves && (c.begun || s.p.Status.HeldTime != nil || s.seen.Checked && s.seen.Futile == ""):
		s.allMoved(moves - c.moved)
	case s.stopped() != nil || len(c.failed) > 0 || s.p.DeletionTimestamp != nil:
		s.stop(c, c.failed)
	case s.seen.Goal == Gone && c.begun && c.underway > 0: // it may be created again
		s.out.Hold, s.out.Suspend = true, s.waitingToEvict()
		s.set(v1alpha1.DefragmentationReasonMoving,
			fmt.Sprintf("%s; %d moves under way are awaited, and no more begin unless it is made anew", s.goalText(),
				c.underway))
	case s.seen.Goal == Runs && c.underway > 0 && c.cleared+c.underway == moves && len(s.cancellable()) == 0:
		// There is nothing to stop.
		s.out.Hold = true
		s.set(v1alpha1.DefragmentationReasonMoving, fmt.Sprintf("%s; %d moves under way are awaited", s.goalText(),
			c.underway))
	case !s.waits(c.begun):
		s.stop(c, nil)
	case !c.begun && (len(s.unreserved()) > 0 || len(s.seen.Holds) < s.seen.Wants):
		s.reserving()
	case !c.begun && s.seen.Doubt != "":
		s.out.Hold, s.out.Again = true, s.now.Add(doubtAgain)
		s.set(v1alpha1.DefragmentationReasonReserving, "no pod is evicted as long as this is so: "+s.seen.Doubt)
	case !c.begun && !s.seen.Checked:
		s.out.Hold, s.out.Check = true, true
		s.set(v1alpha1.DefragmentationReasonReserving, reservingText)
	case !c.begun && s.seen.Futile != "":
		s.endStale()
	default:
		s.moving(c)
	}
}

// waits reports whether the goal still waits. Once a pod was evicted for it, it may be deleted and created again.
func (s *planStep) waits(begun bool) bool {
	return s.seen.Goal == Waits || s.seen.Goal == Renewed && begun
}

// endStale ends a plan that no longer leads to its goal.
func (s *planStep) endStale() {
	s.end(v1alpha1.DefragmentationFailed, v1alpha1.DefragmentationReasonOutdated,
		"the cluster is not as it was when the plan was made, and no pod was evicted: "+s.seen.Futile)
}

// progress is how far the moves of a plan have come.
type progress struct {
	// begun: a pod may have been evicted, or may be at any time.
	begun                    bool
	moved, cleared, underway int
	// failed are the moves that failed, each with its reason.
	failed []string
}

// countMoves returns how far the moves have come, and updates their phases.
func (s *planStep) countMoves() (c progress) {
	for i := range s.out.Status.Moves {
		move, m := &s.out.Status.Moves[i], s.seen.Moves[i]
		before := move.Phase
		move.Phase = s.phaseOf(i)
		name := move.Namespace + "/" + move.PodName
		switch {
		case s.isCleared(i):
			c.cleared++
			if move.Phase == v1alpha1.MigrationSucceeded {
				c.moved++
			}
		case m != nil && m.Leaving:
			c.underway++
		case move.Phase == v1alpha1.MigrationFailed && m != nil:
			c.failed = append(c.failed, name+": "+m.condition(v1alpha1.MigrationComplete).Message)
		case move.Phase == v1alpha1.MigrationFailed:
			c.failed = append(c.failed, name)
		case m == nil && before != "":
			c.failed = append(c.failed, name+": its PodMigration is gone")
		case m != nil && m.mayBegin():
			c.underway++
		}
		c.begun = c.begun || m != nil && m.mayBegin() && !m.podWasDeleted() ||
			m == nil && move.Phase == v1alpha1.MigrationSucceeded
	}
	return c
}

// movesToCreate returns the moves that need a PodMigration now. A move that comes after others gets its own once all
// that come after none are reserved: its target might take their room.
func (s *planStep) movesToCreate() (list []int) {
	reserved := len(s.unreserved()) == 0
	for i := range s.p.Status.Moves {
		if s.seen.Moves[i] == nil && s.p.Status.Moves[i].Phase == "" && (reserved || len(s.p.Status.Moves[i].After) == 0) {
			list = append(list, i)
		}
	}
	return list
}

// cancellable returns the moves under way whose pods cannot have been evicted.
func (s *planStep) cancellable() (list []int) {
	for i := range s.p.Status.Moves {
		if m := s.seen.Moves[i]; m != nil && !Ended(m.Status.Phase) && !m.mayBeEvicted() {
			list = append(list, i)
		}
	}
	return list
}

// unreserved returns the moves whose targets have room from the beginning, and are not reserved.
func (s *planStep) unreserved() (list []string) {
	for i, move := range s.p.Status.Moves {
		if m := s.seen.Moves[i]; len(move.After) == 0 && !s.isCleared(i) && (m == nil || m.needsTarget()) {
			list = append(list, fmt.Sprintf("%s/%s to %s", move.Namespace, move.PodName, move.TargetNode))
		}
	}
	return list
}

const reservingText = "the targets are being reserved; no pod is evicted before all are that have room"

func (s *planStep) reserving() {
	s.out.Hold, s.out.Make = true, s.movesToCreate()
	s.set(v1alpha1.DefragmentationReasonReserving, reservingText)
	s.out.Again = s.now.Add(reserveWithin)
	if start := s.p.Status.StartTime; start != nil {
		s.out.Again = start.Add(reserveWithin)
	}
	if s.now.Before(s.out.Again) {
		return
	}
	s.end(v1alpha1.DefragmentationFailed, v1alpha1.DefragmentationReasonMoveFailed,
		fmt.Sprintf("not all targets could be reserved within %s, and no pod was evicted: %s", reserveWithin,
			strings.Join(s.unreserved(), ", ")))
}

// stop lets no more moves begin, and ends the plan once none is under way. Its condition says why from then on.
func (s *planStep) stop(c progress, failed []string) {
	reason, why := v1alpha1.DefragmentationReasonMoveFailed, strings.Join(failed, "; ")
	switch was := s.stopped(); {
	case was != nil:
		reason, why = was.Reason, was.Message
	case s.p.DeletionTimestamp != nil:
		reason, why = v1alpha1.DefragmentationReasonCancelled, "it is being deleted"
	case !s.waits(c.begun):
		reason, why = v1alpha1.DefragmentationReasonOutdated, s.goalText()
	}
	if s.out.Cancel = s.cancellable(); c.underway == 0 {
		s.end(v1alpha1.DefragmentationFailed, reason, why)
		return
	}
	s.out.Hold = true
	s.set(reason, why)
}

// stopped returns why a running plan begins no more moves; nil if it does.
func (s *planStep) stopped() *metav1.Condition {
	c := meta.FindStatusCondition(s.p.Status.Conditions, v1alpha1.DefragmentationComplete)
	if c != nil && slices.Contains([]string{v1alpha1.DefragmentationReasonMoveFailed,
		v1alpha1.DefragmentationReasonOutdated, v1alpha1.DefragmentationReasonCancelled}, c.Reason) {
		return c
	}
	return nil
}

// allMoved computes the step once all moves are done, except for pods that were gone.
func (s *planStep) allMoved(gone int) {
	status := &s.out.Status
	moved := "all pods are moved"
	if gone > 0 {
		moved = fmt.Sprintf("%d of %d pods are moved, and %d had gone by themselves", status.MovedCount,
			len(status.Moves), gone)
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
		status.HeldTime = times.Stored(s.now)
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
		s.end(v1alpha1.DefragmentationFailed, v1alpha1.DefragmentationReasonCancelled,
			moved+"; it is being deleted, and what was freed is no longer held")
	case s.now.Before(end):
		s.out.Hold, s.out.Again = true, end
		text := fmt.Sprintf("%s; what was freed is held for %s until %s", moved, s.out.Status.Goal,
			end.UTC().Format(time.RFC3339))
		if why != "" {
			text += ": " + why
		}
		s.set(v1alpha1.DefragmentationReasonHeld, text)
	default:
		s.end(v1alpha1.DefragmentationSucceeded, v1alpha1.DefragmentationReasonUnused,
			fmt.Sprintf("what was freed was held for %s, and %s did not use it", hold, s.out.Status.Goal))
	}
}

// end ends the plan.
func (s *planStep) end(phase v1alpha1.DefragmentationPhase, reason, message string) {
	status := s.out.Status
	status.Phase, status.EndTime = phase, times.Stored(s.now)
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
		Type: v1alpha1.DefragmentationComplete, Status: is, Reason: reason, Message: words.Clip(message, LongestMessage),
		ObservedGeneration: s.p.Generation, LastTransitionTime: *times.Stored(s.now),
	})
}
