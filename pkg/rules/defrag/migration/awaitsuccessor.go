package migration

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/util/times"
)

// successorArrived reports whether the successor runs, or ran, on the target, and updates the status. The migration is
// done once the pod itself has ended, too: then its node has the capacity back.
func (s *step) successorArrived(r *Reservation) bool {
	status, spec := &s.out.Status, &s.m.Spec
	if by := s.seen.Successor; status.Successor == nil && by != nil && by.Node == spec.TargetNode {
		status.Successor = &v1alpha1.MigrationSuccessor{Name: by.Name, UID: by.UID}
	}
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
	case status.Successor == nil && (r == nil || r.Phase != v1alpha1.ReservationSucceeded || s.podRuns()):
		return false
	case s.terminating():
		s.awaitTermination()
	default:
		s.evicted()
		status.Phase = v1alpha1.MigrationSucceeded
		s.end(metav1.ConditionTrue, v1alpha1.MigrationReasonMoved, message)
	}
	return true
}

// successorElsewhere ends the migration of a pod whose successor has got another node than the target, as where its
// whole gang starts anew. Unless that is the source, the source has its room back.
func (s *step) successorElsewhere() {
	by, reason := s.seen.Successor, v1alpha1.MigrationReasonPodGone
	if by.Node == s.m.Spec.SourceNode {
		reason = v1alpha1.MigrationReasonNoSuccessor
	}
	s.fail(reason, fmt.Sprintf("pod %s came in place of %s, and has got node %s", by.Name, s.m.Spec.PodName, by.Node))
}

// terminating reports whether the pod is being deleted and still has its node.
func (s *step) terminating() bool {
	pod := s.seen.Pod
	return pod != nil && pod.UID == s.m.Spec.PodUID && !pod.Ended && !s.podRuns()
}

// awaitTermination waits for the pod to end, for its grace period and the timeout. It reports whether time is left.
func (s *step) awaitTermination() bool {
	s.evicted()
	since := meta.FindStatusCondition(s.out.Status.Conditions, v1alpha1.MigrationEvicted).LastTransitionTime
	if s.out.Again = since.Add(s.timeout() + s.seen.Pod.Grace); s.now.Before(s.out.Again) {
		return true
	}
	s.fail(v1alpha1.MigrationReasonPodStays,
		fmt.Sprintf("pod %s is being deleted, and does not end: its node has not got its room back", s.m.Spec.PodName))
	return false
}

// awaitGone is how long to wait for the successor of a pod that was not evicted: it may have none.
const awaitGone = time.Minute

// awaitSuccessor waits for the successor of a pod that is gone.
func (s *step) awaitSuccessor() {
	status := &s.out.Status
	if status.GoneTime == nil {
		status.GoneTime = times.Stored(s.now)
	}
	wait := s.timeout()
	if s.goneUnevicted() {
		wait = min(wait, awaitGone)
	}
	end := status.GoneTime.Add(wait)
	if s.out.Again = end; !s.now.Before(end) {
		s.failWithoutSuccessor(v1alpha1.MigrationReasonNoSuccessor,
			fmt.Sprintf("no successor of pod %s came to node %s within %s", s.m.Spec.PodName, s.m.Spec.TargetNode, wait))
		return
	}
	s.openToSuccessor()
}

// openToSuccessor opens the Reservation to the successor unless it is open.
func (s *step) openToSuccessor() {
	if !s.ownReservation().Open {
		s.out.Action = Open
	}
}

// goneUnevicted reports whether the pod is gone, or terminating, without an eviction by this PodMigration.
func (s *step) goneUnevicted() bool {
	c := meta.FindStatusCondition(s.out.Status.Conditions, v1alpha1.MigrationEvicted)
	return c != nil && c.Reason == v1alpha1.MigrationReasonPodGone
}

// failWithoutSuccessor ends the migration without a successor on the target. A pod that was not evicted has freed its
// node all the same, and the reason says so.
func (s *step) failWithoutSuccessor(reason, message string) {
	if s.goneUnevicted() {
		reason = v1alpha1.MigrationReasonPodGone
	}
	s.fail(reason, message)
}
