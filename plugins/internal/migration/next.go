package migration

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

const (
	// opening is the time between opening a Reservation to the successor and evicting the pod: by then the
	// scheduler knows of it, and does not send the successor elsewhere.
	opening = 1500 * time.Millisecond // conditions are in whole seconds
	// defaultTimeout is the default of the schema, for objects that did not get it from the API
	// server.
	defaultTimeout = 10 * time.Minute
)

// Pod is the pod that has the name of the pod to move.
type Pod struct {
	UID  types.UID
	Node string
	// Ending: it is being deleted. Ended: it has come to its end. Controlled: a controller makes it
	// again.
	Ending, Ended, Controlled bool
	// Grace is how long it may take to end.
	Grace time.Duration
	// Successors are the pods that its controller makes in its place; nil if they are not known.
	Successors *v1alpha1.MigrationSuccessors
}

// Reservation is the Reservation that has the name of the target's.
type Reservation struct {
	// Ours: it was made for this PodMigration.
	Ours bool
	// Open: pods other than the one to move may use it.
	Open  bool
	Phase v1alpha1.ReservationPhase
	// Node is where it is held; empty for nowhere yet.
	Node string
	// Why is why it has no place, or why it has ended.
	Why   string
	Users []v1alpha1.ReservationConsumer
}

// Seen is what a status follows from, besides the PodMigration itself.
type Seen struct {
	// Pod is nil if there is none of the name.
	Pod *Pod
	// Reservation is nil if there is none of the name.
	Reservation *Reservation
	// Alike is the name of a Reservation of another PodMigration that is open to the same successors; empty for none.
	Alike string
	// Barren: the controller that would make a successor is gone.
	Barren bool
}

// Action is what is to be done.
type Action int

// Actions.
const (
	// Nothing is to be done but wait.
	Nothing Action = iota
	// Reserve makes the Reservation.
	Reserve
	// Open makes the successor an owner of the Reservation.
	Open
	// Evict evicts the pod.
	Evict
	// Release deletes the Reservation.
	Release
)

// Step is what follows. If the status differs from the current one, it has to be written before anything is
// done.
type Step struct {
	Status v1alpha1.PodMigrationStatus
	Action Action
	// Again is when to look again even if nothing happens; the zero time for never.
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

// Next returns what follows for a PodMigration.
func Next(m *v1alpha1.PodMigration, seen Seen, now time.Time) Step {
	s := &step{m: m, seen: seen, now: now}
	m.Status.DeepCopyInto(&s.out.Status)
	switch {
	case Ended(m.Status.Phase):
		if s.ours() != nil {
			s.out.Action = Release
		}
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

// step is a Step that is being worked out.
type step struct {
	m    *v1alpha1.PodMigration
	seen Seen
	now  time.Time
	out  Step
}

// ours returns the Reservation that was made for the PodMigration; nil for none.
func (s *step) ours() *Reservation {
	if r := s.seen.Reservation; r != nil && r.Ours {
		return r
	}
	return nil
}

// there reports whether the pod that is to move is there, and is not on its way out.
func (s *step) there() bool {
	pod := s.seen.Pod
	return pod != nil && pod.UID == s.m.Spec.PodUID && !pod.Ending && !pod.Ended
}

// pending works out the step while nothing is evicted yet.
func (s *step) pending() {
	status, spec := &s.out.Status, &s.m.Spec
	status.Phase, status.Reservation = v1alpha1.MigrationPending, ReservationName(s.m)
	if status.StartTime == nil && !spec.Suspend {
		status.StartTime = seconds(s.now)
	}
	pod, r := s.seen.Pod, s.seen.Reservation
	if s.there() {
		status.Successors = pod.Successors
	}
	switch {
	case !s.there() && s.restarts():
		status.Phase = v1alpha1.MigrationRunning
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.MigrationEvicted) // so that its transition time is now
		s.set(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonPodGone, fmt.Sprintf("pod %s went before it was evicted; its successor is awaited", spec.PodName))
	case !s.there():
		s.fail(v1alpha1.MigrationReasonPodGone, fmt.Sprintf("pod %s with UID %s does not run any more", spec.PodName, spec.PodUID))
	case pod.Node != spec.SourceNode:
		s.fail(v1alpha1.MigrationReasonPodGone, fmt.Sprintf("pod %s is on node %q, not on %s", spec.PodName, pod.Node, spec.SourceNode))
	case !pod.Controlled && !spec.AllowBarePod:
		s.fail(v1alpha1.MigrationReasonNoController, fmt.Sprintf("pod %s has no controller, which would make it again: set spec.allowBarePod if something else does", spec.PodName))
	case r == nil && s.reserved():
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("Reservation %s was deleted", status.Reservation))
	case r == nil:
		s.reserving("it is being made")
		s.out.Action = Reserve
	case !r.Ours:
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("Reservation %s was not made for this PodMigration: name another one in spec.reservation", status.Reservation))
	case len(r.Users) > 0:
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("pod %s/%s used Reservation %s before the eviction", r.Users[0].Namespace, r.Users[0].Name, status.Reservation))
	case r.Phase == v1alpha1.ReservationAvailable && r.Node == spec.TargetNode:
		s.ready(r)
	case r.Phase == v1alpha1.ReservationAvailable, r.Phase == v1alpha1.ReservationSucceeded, r.Phase == v1alpha1.ReservationFailed:
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("Reservation %s is %s on node %q: %s", status.Reservation, r.Phase, r.Node, cmp.Or(r.Why, "it has ended")))
	default:
		s.reserving(r.Why)
	}
}

// restarts reports whether something else deletes, or has deleted, the pod whose target is held: an operator that restarts a gang
// as a whole does so when another of its pods is moved. A pod that has come to its end has no successor.
func (s *step) restarts() bool {
	pod, r := s.seen.Pod, s.ours()
	ended := pod != nil && pod.UID == s.m.Spec.PodUID && pod.Ended
	held := r != nil && (r.Phase == v1alpha1.ReservationAvailable || r.Phase == v1alpha1.ReservationSucceeded) && r.Node == s.m.Spec.TargetNode
	return s.reserved() && !ended && s.m.Status.Successors != nil && held
}

// reserved reports whether the target has been reserved.
func (s *step) reserved() bool {
	return meta.IsStatusConditionTrue(s.m.Status.Conditions, v1alpha1.MigrationReserved)
}

// reserving works out the step while the target is not reserved.
func (s *step) reserving(why string) {
	name, spec := s.out.Status.Reservation, &s.m.Spec
	why = cmp.Or(why, "no scheduler has tried it yet")
	if end, runs := s.deadline(s.out.Status.StartTime); runs {
		if !s.now.Before(end) {
			s.fail(v1alpha1.MigrationReasonNoRoom, fmt.Sprintf("Reservation %s found no room on node %s within %s: %s", name, spec.TargetNode, s.timeout(), why))
			return
		}
		s.out.Again = end
	}
	s.set(v1alpha1.MigrationReserved, metav1.ConditionFalse, v1alpha1.MigrationReasonReserving, fmt.Sprintf("Reservation %s has no place yet: %s", name, why))
	s.set(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonWaiting, "the target is not reserved yet")
}

// ready works out the step once the target is reserved.
func (s *step) ready(r *Reservation) {
	name := s.out.Status.Reservation
	s.set(v1alpha1.MigrationReserved, metav1.ConditionTrue, v1alpha1.MigrationReasonReserved, fmt.Sprintf("Reservation %s holds the target on node %s", name, r.Node))
	was := meta.FindStatusCondition(s.m.Status.Conditions, v1alpha1.MigrationEvicted)
	switch {
	case s.m.Spec.Suspend:
		s.set(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonSuspended, "spec.suspend is true")
	case !r.Open && s.seen.Alike != "":
		s.set(v1alpha1.MigrationEvicted, metav1.ConditionFalse, v1alpha1.MigrationReasonWaiting,
			fmt.Sprintf("the successor could not be told from that of Reservation %s: pods of one controller that are alike are moved one at a time", s.seen.Alike))
	case !r.Open:
		s.out.Action = Open
	case was == nil || was.Reason != v1alpha1.MigrationReasonEvicting:
		s.set(v1alpha1.MigrationEvicted, metav1.ConditionUnknown, v1alpha1.MigrationReasonEvicting, fmt.Sprintf("the pod is about to be evicted; its successor may use Reservation %s", name))
		s.out.Again = s.now.Add(opening)
	case s.now.Before(was.LastTransitionTime.Add(opening)):
		s.out.Again = was.LastTransitionTime.Add(opening)
	default:
		s.out.Status.Phase, s.out.Action = v1alpha1.MigrationRunning, Evict
	}
}

// running works out the step once the pod may have been evicted.
func (s *step) running() {
	status, spec := &s.out.Status, &s.m.Spec
	r := s.ours()
	if r != nil && s.there() && len(r.Users) > 0 {
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("pod %s/%s used Reservation %s before the eviction", r.Users[0].Namespace, r.Users[0].Name, status.Reservation))
		return
	}
	if s.arrived(r) {
		return
	}
	lost := r == nil || r.Phase != v1alpha1.ReservationAvailable || r.Node != spec.TargetNode
	switch {
	case s.there() && lost:
		s.fail(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("Reservation %s was lost before the pod was evicted", status.Reservation))
	case s.there():
		s.out.Action = Evict
		begun := status.StartTime
		if c := meta.FindStatusCondition(status.Conditions, v1alpha1.MigrationEvicted); c != nil && c.Reason == v1alpha1.MigrationReasonEvicting {
			begun = &c.LastTransitionTime
		}
		if end, runs := s.deadline(begun); runs {
			if s.out.Again = end; !s.now.Before(end) {
				s.fail(v1alpha1.MigrationReasonRefused, fmt.Sprintf("the pod could not be evicted within %s", s.timeout()))
			}
		}
	case lost:
		s.evicted()
		s.unmoved(v1alpha1.MigrationReasonReservationLost, fmt.Sprintf("Reservation %s ended before the successor came: the scheduler places it like any pod", status.Reservation))
	case s.leaving():
		if s.leave() {
			s.letIn()
		}
	case s.seen.Barren:
		s.evicted()
		s.fail(v1alpha1.MigrationReasonPodGone, fmt.Sprintf("pod %s is gone, and so is its controller: nothing makes a successor", spec.PodName))
	default:
		s.evicted()
		s.await()
	}
}

// arrived reports whether the successor is on the target, or was, and updates the status then. Once the pod itself has
// ended, too, its node has the room back, and the migration is done.
func (s *step) arrived(r *Reservation) bool {
	status, spec := &s.out.Status, &s.m.Spec
	if status.Successor == nil && r != nil {
		for _, user := range r.Users {
			if user.UID != spec.PodUID && user.Namespace == s.m.Namespace {
				status.Successor = &v1alpha1.MigrationSuccessor{Name: user.Name, UID: user.UID}
				break
			}
		}
	}
	message := "the successor came to node " + spec.TargetNode + ", and has ended"
	if by := status.Successor; by != nil {
		message = fmt.Sprintf("pod %s runs on node %s in place of %s", by.Name, spec.TargetNode, spec.PodName)
	}
	switch {
	case status.Successor == nil && (r == nil || r.Phase != v1alpha1.ReservationSucceeded || s.there()):
		return false
	case s.leaving():
		s.leave()
	default:
		s.moved(message)
	}
	return true
}

// leaving reports whether the pod is on its way out, and still has its node.
func (s *step) leaving() bool {
	pod := s.seen.Pod
	return pod != nil && pod.UID == s.m.Spec.PodUID && !pod.Ended && !s.there()
}

// leave waits for the pod to end: for its grace period and the timeout. It reports whether there is any time left.
func (s *step) leave() bool {
	s.evicted()
	since := meta.FindStatusCondition(s.out.Status.Conditions, v1alpha1.MigrationEvicted).LastTransitionTime
	if s.out.Again = since.Add(s.timeout() + s.seen.Pod.Grace); s.now.Before(s.out.Again) {
		return true
	}
	s.fail(v1alpha1.MigrationReasonPodStays, fmt.Sprintf("pod %s is being deleted, and does not end: its node has not got its room back", s.m.Spec.PodName))
	return false
}

// moved ends the migration with success.
func (s *step) moved(message string) {
	s.evicted()
	s.out.Status.Phase = v1alpha1.MigrationSucceeded
	s.end(metav1.ConditionTrue, v1alpha1.MigrationReasonMoved, message)
}

// awaitGone is how long the successor of a pod that went by itself is awaited: it may have none.
const awaitGone = time.Minute

// await waits for the successor once the pod is gone.
func (s *step) await() {
	status := &s.out.Status
	if status.GoneTime == nil {
		status.GoneTime = seconds(s.now)
	}
	wait := s.timeout()
	if s.went() {
		wait = min(wait, awaitGone)
	}
	end := status.GoneTime.Add(wait)
	if s.out.Again = end; !s.now.Before(end) {
		s.unmoved(v1alpha1.MigrationReasonNoSuccessor, fmt.Sprintf("no successor of pod %s came to node %s within %s", s.m.Spec.PodName, s.m.Spec.TargetNode, wait))
		return
	}
	s.letIn()
}

// letIn opens the Reservation to the successor if it is not open.
func (s *step) letIn() {
	if !s.ours().Open {
		s.out.Action = Open
	}
}

// went reports whether the pod went by itself, and was not evicted for this PodMigration.
func (s *step) went() bool {
	c := meta.FindStatusCondition(s.out.Status.Conditions, v1alpha1.MigrationEvicted)
	return c != nil && c.Reason == v1alpha1.MigrationReasonPodGone
}

// unmoved ends the migration without a successor on the target. If the pod went by itself that is no harm: its node is
// free of it.
func (s *step) unmoved(reason, message string) {
	if s.went() {
		reason = v1alpha1.MigrationReasonPodGone
	}
	s.fail(reason, message)
}

// evicted sets the condition that the pod has been evicted, unless it went by itself.
func (s *step) evicted() {
	if s.went() {
		return
	}
	s.set(v1alpha1.MigrationEvicted, metav1.ConditionTrue, v1alpha1.MigrationReasonEvicted, "the pod has been evicted")
}

// timeout returns how long each of the two waits may take.
func (s *step) timeout() time.Duration {
	if t := s.m.Spec.Timeout; t != nil {
		return t.Duration
	}
	return defaultTimeout
}

// deadline returns the end of a wait; false if it has not begun.
func (s *step) deadline(since *metav1.Time) (time.Time, bool) {
	if since == nil {
		return time.Time{}, false
	}
	return since.Add(s.timeout()), true
}

// fail ends the migration without success.
func (s *step) fail(reason, message string) {
	s.out.Status.Phase = v1alpha1.MigrationFailed
	s.end(metav1.ConditionFalse, reason, message)
}

func (s *step) end(complete metav1.ConditionStatus, reason, message string) {
	s.out.Action, s.out.Again = Nothing, time.Time{}
	s.out.Status.EndTime = seconds(s.now)
	s.set(v1alpha1.MigrationReserved, metav1.ConditionFalse, v1alpha1.MigrationReasonReleased, "nothing is reserved any more")
	s.set(v1alpha1.MigrationComplete, complete, reason, message)
}

// set sets a condition.
func (s *step) set(kind string, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&s.out.Status.Conditions, metav1.Condition{
		Type: kind, Status: is, Reason: reason, Message: clip(message), ObservedGeneration: s.m.Generation, LastTransitionTime: *seconds(s.now),
	})
}

// longest is how long a message may be: a condition's holds 32768.
const longest = 4096

func clip(message string) string {
	if len(message) <= longest {
		return message
	}
	return message[:longest-3] + "..."
}

// seconds returns a time as the API stores it.
func seconds(at time.Time) *metav1.Time { return new(metav1.NewTime(at).Rfc3339Copy()) }
