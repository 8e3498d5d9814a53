package migration

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// defaultTimeout is the default of the schema, for objects without one.
const defaultTimeout = 10 * time.Minute

// Pod is the pod with the name of the pod to move.
type Pod struct {
	UID  types.UID
	Node string
	// Ending: it is being deleted. Ended: it has succeeded or failed. Controlled: a controller replaces it.
	Ending, Ended, Controlled bool
	// Grace is how long it may take to terminate.
	Grace time.Duration
	// Successors are the pods that its controller creates in its place; nil if unknown.
	Successors *v1alpha1.MigrationSuccessors
}

// Reservation is the Reservation with the name of the target's.
type Reservation struct {
	// Ours: it was created for this PodMigration.
	Ours bool
	// Open: pods other than the one to move may use it. Observed: the scheduler knows the owners that it has now.
	Open, Observed bool
	Phase          v1alpha1.ReservationPhase
	// Node is where it is placed; empty while it is not.
	Node string
	// Why is why it is not placed, or why it has ended.
	Why   string
	Users []v1alpha1.ReservationConsumer
}

// Successor is a pod that has come in place of the one to move.
type Successor struct {
	Name string
	UID  types.UID
	// Node is where it is bound.
	Node string
}

// Seen is what the next status depends on, besides the PodMigration.
type Seen struct {
	// Pod is nil if no pod has the name.
	Pod *Pod
	// Reservation is nil if none has the name.
	Reservation *Reservation
	// Unusable is why the target takes no pods, although it is held, while the pod has still to be evicted; empty if it
	// does.
	Unusable string
	// Alike is the name of a Reservation of another PodMigration that is open to the same successors; empty for none.
	Alike string
	// Successor has come in place of the pod, and has got a node; nil for none.
	Successor *Successor
	// Barren: the controller that would make a successor is gone.
	Barren bool
}

// Action is what the caller must do.
type Action int

// Actions.
const (
	// Nothing: wait.
	Nothing Action = iota
	// Reserve makes the Reservation.
	Reserve
	// Open makes the successor an owner of the Reservation; Close undoes that.
	Open
	Close
	// Evict evicts the pod.
	Evict
)

// Step is the next status, and what to do. A status that differs from the current one must be written first.
type Step struct {
	Status v1alpha1.PodMigrationStatus
	Action Action
	// Again is when to look again even if nothing happens; zero for never.
	Again time.Time
}

// ReservationName returns the name of the Reservation of a PodMigration.
func ReservationName(m *v1alpha1.PodMigration) string {
	return cmp.Or(m.Status.Reservation, m.Spec.Reservation, "migration-"+string(m.UID))
}

// Ended reports whether a phase is final.
func Ended(phase v1alpha1.MigrationPhase) bool {
	return phase == v1alpha1.MigrationSucceeded || phase == v1alpha1.MigrationFailed
}

// Next returns the next step of a PodMigration.
func Next(m *v1alpha1.PodMigration, seen Seen, now time.Time) Step {
	s := &step{m: m, seen: seen, now: now}
	m.Status.DeepCopyInto(&s.out.Status)
	switch {
	case Ended(m.Status.Phase): // the caller releases what was reserved for it
	case m.DeletionTimestamp != nil:
		s.fail(v1alpha1.MigrationReasonCancelled, "it is being deleted")
	case m.Status.Phase == v1alpha1.MigrationRunning:
		s.running()
	default:
		s.pending()
	}
	return s.out
}

// Refused returns the status of a PodMigration whose eviction was refused.
func Refused(m *v1alpha1.PodMigration, reason, message string, now time.Time) v1alpha1.PodMigrationStatus {
	s := &step{m: m, now: now}
	m.Status.DeepCopyInto(&s.out.Status)
	s.set(v1alpha1.MigrationEvicted, metav1.ConditionFalse, reason, message)
	s.fail(reason, message)
	return s.out.Status
}

// Barred returns the status of a PodMigration whose eviction a PodDisruptionBudget does not allow now: it is tried
// again until the timeout, since a budget allows more once pods that were moved before are ready.
func Barred(m *v1alpha1.PodMigration, message string, now time.Time) v1alpha1.PodMigrationStatus {
	s := &step{m: m, now: now}
	m.Status.DeepCopyInto(&s.out.Status)
	s.set(v1alpha1.MigrationEvicted, metav1.ConditionUnknown, v1alpha1.MigrationReasonDisruptionBudget, message)
	return s.out.Status
}

// step is a Step under construction.
type step struct {
	m    *v1alpha1.PodMigration
	seen Seen
	now  time.Time
	out  Step
}

// ownReservation returns the Reservation that was created for the PodMigration; nil for none.
func (s *step) ownReservation() *Reservation {
	if r := s.seen.Reservation; r != nil && r.Ours {
		return r
	}
	return nil
}

// podRuns reports whether the pod to move exists and is neither terminating nor finished.
func (s *step) podRuns() bool {
	pod := s.seen.Pod
	return pod != nil && pod.UID == s.m.Spec.PodUID && !pod.Ending && !pod.Ended
}

// pending computes the step before the eviction.
func (s *step) pending() {
	status, spec := &s.out.Status, &s.m.Spec
	status.Phase, status.Reservation = v1alpha1.MigrationPending, ReservationName(s.m)
	if status.StartTime == nil && !spec.Suspend {
		status.StartTime = times.Stored(s.now)
	}
	pod, r := s.seen.Pod, s.seen.Reservation
	if s.podRuns() {
		status.Successors = pod.Successors
	}
	switch {
	case !s.podRuns() && s.deletedElsewhere():
		status.Phase = v1alpha1.MigrationRunning
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.MigrationEvicted) // so that its transition time is now
		s.set(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonPodGone,
			fmt.Sprintf("pod %s was deleted before it was evicted; waiting for its replacement", spec.PodName))
	case !s.podRuns():
		s.fail(v1alpha1.MigrationReasonPodGone, fmt.Sprintf("pod %s with UID %s is no longer running", spec.PodName,
			spec.PodUID))
	case pod.Node != spec.SourceNode:
		s.fail(v1alpha1.MigrationReasonPodGone, fmt.Sprintf("pod %s is on node %q, not on %s", spec.PodName, pod.Node,
			spec.SourceNode))
	case !pod.Controlled && !spec.AllowBarePod:
		s.fail(v1alpha1.MigrationReasonNoController,
			fmt.Sprintf("pod %s has no controller, which would make it again: set spec.allowBarePod if something else does",
				spec.PodName))
	case r == nil && s.wasReserved():
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("Reservation %s was deleted", status.Reservation))
	case r == nil:
		s.reserving("it is being made")
		s.out.Action = Reserve
	case !r.Ours:
		s.fail(v1alpha1.MigrationReasonReservationLost,
			fmt.Sprintf("Reservation %s was not made for this PodMigration: name another one in spec.reservation",
				status.Reservation))
	case len(r.Users) > 0:
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("pod %s/%s used Reservation %s before the eviction",
			r.Users[0].Namespace, r.Users[0].Name, status.Reservation))
	case r.Phase == v1alpha1.ReservationAvailable && r.Node == spec.TargetNode && s.seen.Unusable != "":
		s.reserving(s.seen.Unusable)
	case r.Phase == v1alpha1.ReservationAvailable && r.Node == spec.TargetNode:
		s.ready(r)
	case r.Phase == v1alpha1.ReservationAvailable, r.Phase == v1alpha1.ReservationSucceeded,
		r.Phase == v1alpha1.ReservationFailed:
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("Reservation %s is %s on node %q: %s", status.Reservation,
			r.Phase, r.Node, cmp.Or(r.Why, "it has ended")))
	default:
		s.reserving(r.Why)
	}
}

// deletedElsewhere reports whether something else deletes, or has deleted, the pod whose target is held: an operator
// that restarts a gang as a whole does so when another of its pods is moved. A finished pod has no successor.
func (s *step) deletedElsewhere() bool {
	pod, r := s.seen.Pod, s.ownReservation()
	ended := pod != nil && pod.UID == s.m.Spec.PodUID && pod.Ended
	held := r != nil && (r.Phase == v1alpha1.ReservationAvailable || r.Phase == v1alpha1.ReservationSucceeded) &&
		r.Node == s.m.Spec.TargetNode
	return s.wasReserved() && !ended && s.m.Status.Successors != nil && held
}

// wasReserved reports whether the target has been reserved.
func (s *step) wasReserved() bool {
	return meta.IsStatusConditionTrue(s.m.Status.Conditions, v1alpha1.MigrationReserved)
}

// reserving computes the step while the target is not reserved, or takes no pods. The time for that begins when the
// migration does, or when it came to be so. It stands still while the migration is suspended.
func (s *step) reserving(why string) {
	name, spec := s.out.Status.Reservation, &s.m.Spec
	why = cmp.Or(why, "no scheduler has tried it yet")
	state, failure := "has no place yet", "found no room"
	if s.seen.Unusable != "" {
		state, failure = "cannot be used now", "could not be used"
	}
	since := s.out.Status.StartTime
	switch was := meta.FindStatusCondition(s.m.Status.Conditions, v1alpha1.MigrationReserved); {
	case s.wasReserved():
		since = times.Stored(s.now)
	case was != nil && since != nil && since.Before(&was.LastTransitionTime):
		since = &was.LastTransitionTime
	}
	if end, runs := s.deadline(since); runs && !spec.Suspend {
		if !s.now.Before(end) {
			s.fail(v1alpha1.MigrationReasonNoRoom, fmt.Sprintf("Reservation %s %s on node %s within %s: %s", name,
				failure, spec.TargetNode, s.timeout(), why))
			return
		}
		s.out.Again = end
	}
	s.set(v1alpha1.MigrationReserved, metav1.ConditionFalse, v1alpha1.MigrationReasonReserving,
		fmt.Sprintf("Reservation %s %s: %s", name, state, why))
	s.set(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonWaiting,
		"the target is not reserved yet")
}

// ready computes the step once the target is reserved.
func (s *step) ready(r *Reservation) {
	name := s.out.Status.Reservation
	s.set(v1alpha1.MigrationReserved, metav1.ConditionTrue, v1alpha1.MigrationReasonReserved,
		fmt.Sprintf("Reservation %s holds the target on node %s", name, r.Node))
	was := meta.FindStatusCondition(s.m.Status.Conditions, v1alpha1.MigrationEvicted)
	switch {
	case s.m.Spec.Suspend:
		s.set(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonSuspended, "spec.suspend is true")
		if r.Open {
			s.out.Action = Close // others may wait for that whose pods are alike
		}
	case !r.Open && s.seen.Alike != "":
		s.set(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonWaiting,
			fmt.Sprintf("the successor could not be told from that of Reservation %s: "+
				"pods of one controller that are alike are moved one at a time", s.seen.Alike))
	case !r.Open:
		s.out.Action = Open
	case was == nil || was.Reason != v1alpha1.MigrationReasonEvicting:
		s.set(v1alpha1.MigrationEvicted, metav1.ConditionUnknown, v1alpha1.MigrationReasonEvicting,
			fmt.Sprintf("the pod is evicted once the scheduler knows that its successor may use Reservation %s", name))
	case !r.Observed: // it would place the successor elsewhere
		end, runs := s.deadline(&was.LastTransitionTime)
		if s.out.Again = end; runs && !s.now.Before(end) {
			s.fail(v1alpha1.MigrationReasonNoRoom, fmt.Sprintf("no scheduler has taken note within %s that the successor may "+
				"use Reservation %s: see that a lockstep-scheduler runs", s.timeout(), name))
		}
	default:
		s.out.Status.Phase, s.out.Action = v1alpha1.MigrationRunning, Evict
	}
}

// running computes the step once the pod may have been evicted.
func (s *step) running() {
	status, spec := &s.out.Status, &s.m.Spec
	r := s.ownReservation()
	if r != nil && s.podRuns() && len(r.Users) > 0 {
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("pod %s/%s used Reservation %s before the eviction",
			r.Users[0].Namespace, r.Users[0].Name, status.Reservation))
		return
	}
	if s.successorArrived(r) {
		return
	}
	lost := r == nil || r.Phase != v1alpha1.ReservationAvailable || r.Node != spec.TargetNode
	switch {
	case s.podRuns() && lost:
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("Reservation %s was lost before the pod was evicted",
			status.Reservation))
	case s.podRuns() && spec.Suspend:
		s.pending() // not evicted yet: a budget may not have allowed it
	case s.podRuns():
		if s.seen.Unusable == "" {
			s.out.Action = Evict
		}
		s.evicting()
	case lost:
		s.evicted()
		s.failWithoutSuccessor(v1alpha1.MigrationReasonReservationLost,
			fmt.Sprintf("Reservation %s ended before the successor came: the scheduler places it like any pod",
				status.Reservation))
	case s.terminating():
		if s.awaitTermination() {
			s.openToSuccessor()
		}
	case s.seen.Successor != nil:
		s.evicted()
		s.successorElsewhere()
	case s.seen.Barren:
		s.evicted()
		s.fail(v1alpha1.MigrationReasonPodGone,
			fmt.Sprintf("pod %s is gone, and its controller too, or it is to have no pods: nothing makes a successor",
				spec.PodName))
	default:
		s.evicted()
		s.awaitSuccessor()
	}
}

// evicting computes the step until the eviction is accepted.
func (s *step) evicting() {
	begun, reason, why := s.out.Status.StartTime, v1alpha1.MigrationReasonRefused, ""
	if c := meta.FindStatusCondition(s.out.Status.Conditions, v1alpha1.MigrationEvicted); c != nil {
		switch c.Reason {
		case v1alpha1.MigrationReasonDisruptionBudget:
			reason, why = c.Reason, ": "+c.Message
			begun = &c.LastTransitionTime
		case v1alpha1.MigrationReasonEvicting:
			begun = &c.LastTransitionTime
		}
	}
	if s.seen.Unusable != "" {
		reason, why = v1alpha1.MigrationReasonNoRoom, ": "+s.seen.Unusable
	}
	end, runs := s.deadline(begun)
	if !runs {
		return
	}
	if s.out.Again = end; !s.now.Before(end) {
		s.fail(reason, fmt.Sprintf("the pod could not be evicted within %s%s", s.timeout(), why))
	}
}

// evicted sets the condition that the pod was evicted, unless it is gone without.
func (s *step) evicted() {
	if s.goneUnevicted() {
		return
	}
	s.set(v1alpha1.MigrationEvicted, metav1.ConditionTrue, v1alpha1.MigrationReasonEvicted, "the pod has been evicted")
}

// timeout returns the limit of each of the two waits.
func (s *step) timeout() time.Duration {
	if t := s.m.Spec.Timeout; t != nil {
		return t.Duration
	}
	return defaultTimeout
}

// deadline returns the end of a wait; false before it has begun.
func (s *step) deadline(since *metav1.Time) (time.Time, bool) {
	if since == nil {
		return time.Time{}, false
	}
	return since.Add(s.timeout()), true
}

// fail ends the migration as failed.
func (s *step) fail(reason, message string) {
	s.out.Status.Phase = v1alpha1.MigrationFailed
	s.end(metav1.ConditionFalse, reason, message)
}

func (s *step) end(complete metav1.ConditionStatus, reason, message string) {
	s.out.Action, s.out.Again = Nothing, time.Time{}
	s.out.Status.EndTime = times.Stored(s.now)
	s.set(v1alpha1.MigrationReserved, metav1.ConditionFalse, v1alpha1.MigrationReasonReleased,
		"it no longer reserves anything")
	s.set(v1alpha1.MigrationComplete, complete, reason, message)
}

// set sets a condition.
func (s *step) set(kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.out.Status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: words.Clip(message, LongestMessage),
		ObservedGeneration: s.m.Generation,
		LastTransitionTime: *times.Stored(s.now),
	})
}

// LongestMessage is the limit of the message of a condition; the API server takes 32768 bytes.
const LongestMessage = 4096
