package binder

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// landsWithin is how long after it was sent a call without an answer may still be
// stored: the API server ends requests after a minute (its --request-timeout), and
// what it has handed to etcd by then, etcd decides within seconds.
const landsWithin = 75 * time.Second

// otherUID is what the API server returns where the UID of a Binding is not that of the pod.
const otherUID = "Precondition failed: UID in precondition"

// unanswered reports whether a Binding call that failed may still be running, and be stored later. Otherwise the answer
// was no; but a Binding that is sent again after the first was stored gets a no as well, and only the pod shows which.
//
// A Conflict is no answer: the API server wraps whatever goes wrong in storage into
// one, timeouts of etcd too. Only the Conflict that names the UID means that another pod
// has the name by now.
func unanswered(err error) bool {
	code, reason := int32(0), apierrors.ReasonForError(err)
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		code = status.Status().Code
	}
	switch {
	case code == http.StatusConflict && strings.Contains(err.Error(), otherUID):
		return false
	case code == 0, code == http.StatusConflict, code == http.StatusRequestTimeout, code > http.StatusInternalServerError:
		return true // 502 to 504 come from proxies in between, too
	case reason == metav1.StatusReasonTimeout, reason == metav1.StatusReasonServerTimeout,
		apierrors.IsUnexpectedServerError(err):
		return true
	}
	return false
}

// outcome is what a look at the pod shows about its Binding.
type outcome int

const (
	// unknown: the look failed.
	unknown outcome = iota
	// again: it is not stored; send it again.
	again
	// bound: it is stored.
	bound
	// elsewhere: another scheduler bound the pod to another node.
	elsewhere
	// gone: the pod is deleted, or being deleted; none of our Bindings can still be stored.
	gone
	// failed: it is not stored, and none of the calls can still be stored.
	failed
)

// String returns the outcome as metrics and logs have it.
func (o outcome) String() string {
	return [...]string{"unknown", "again", "bound", "elsewhere", "gone", "failed"}[o]
}

// question is whether one of the Bindings that were sent for a pod is stored. All
// of them carry the pod's UID and name the same node, so at most one is ever stored,
// and which one makes no difference.
type question struct {
	uid  types.UID
	node string

	times int
	// openUntil is when the last call without an answer can no longer be stored.
	openUntil time.Time
	// refused: the last call was answered with no.
	refused bool
}

// sent notes a call that failed.
func (q *question) sent(err error, now time.Time) {
	q.times++
	if q.refused = !unanswered(err); !q.refused {
		q.openUntil = now.Add(landsWithin)
	}
}

// judge returns what the pod, as it is stored now, shows about the question, and why.
// The look has to be later than the last call.
func (q *question) judge(live *v1.Pod, err error, now time.Time) (outcome, string) {
	switch {
	case apierrors.IsNotFound(err):
		return gone, "the pod is gone"
	case err != nil:
		return unknown, err.Error()
	case live.UID != q.uid:
		return gone, fmt.Sprintf("the pod is gone; there is another of its name, with UID %s", live.UID)
	case live.Spec.NodeName == q.node:
		return bound, ""
	case live.Spec.NodeName != "":
		return elsewhere, fmt.Sprintf("it is bound to node %s, by another scheduler", live.Spec.NodeName)
	case live.DeletionTimestamp != nil:
		return gone, "the pod is being deleted"
	case q.refused && !now.Before(q.openUntil):
		return failed, ""
	}
	return again, ""
}

// open reports whether the pod may have been bound before it was gone: a call was not answered, and no later look
// can show its outcome.
func (q *question) open(live *v1.Pod, err error) bool {
	return !q.openUntil.IsZero() && (err != nil || live.UID != q.uid)
}
