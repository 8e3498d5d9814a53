package reservationstate

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/util/words"
)

// maxNames is how many nodes a message names.
const maxNames = 3

// ready returns the condition Ready. It follows from the phase in the status; the condition itself records why another
// place is sought.
func (l *snapshot) ready(r *v1alpha1.Reservation, status v1alpha1.ReservationStatus, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ReservationReady, Status: metav1.ConditionFalse}
	was := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReservationReady)
	switch {
	case status.Phase == v1alpha1.ReservationAvailable:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReservationReasonAvailable, l.textHeld(r)
	case status.Phase == v1alpha1.ReservationSucceeded:
		c.Reason, c.Message = v1alpha1.ReservationReasonSucceeded, l.textConsumed(r)
	case status.Phase == v1alpha1.ReservationFailed && r.DeletionTimestamp != nil:
		c.Reason, c.Message = v1alpha1.ReservationReasonDeleted, "it is being deleted: it no longer holds anything"
	case status.Phase == v1alpha1.ReservationFailed:
		c.Reason, c.Message = v1alpha1.ReservationReasonExpired, l.textExpired(r)
	case len(l.lost) > 0:
		c.Reason, c.Message = v1alpha1.ReservationReasonNodeLost, l.textLost(r)
	case was != nil && was.Reason == v1alpha1.ReservationReasonNodeLost:
		c.Reason, c.Message = was.Reason, was.Message
	default:
		c.Reason, c.Message = v1alpha1.ReservationReasonPending, l.textAwaited(r, now)
	}
	return c
}

// textHeld says what is held, and until when.
func (l *snapshot) textHeld(r *v1alpha1.Reservation) string {
	text := fmt.Sprintf("%d placements are held", len(l.placements))
	switch {
	case len(l.placements) == 1:
		text = fmt.Sprintf("it is held on node %s", l.placements[0].NodeName)
	case l.spent > 0:
		text = fmt.Sprintf("%d of %d placements used; the others are held", l.spent, len(l.placements))
	}
	text += " until " + textEnd(r)
	if len(l.cordoned) > 0 {
		text += fmt.Sprintf("; cordoned, and still held: %s: owners can use it after kubectl uncordon",
			textNames("node", l.cordoned))
	}
	if len(l.notReady) > 0 {
		text += fmt.Sprintf("; not ready, and still held: %s: owners can use it when kubelet reports again; "+
			"if it does not, delete the node", textNames("node", l.notReady))
	}
	return text
}

func textEnd(r *v1alpha1.Reservation) string {
	if at := Expiry(r); !at.IsZero() {
		return textTime(at)
	}
	return "it is deleted"
}

func textTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// textConsumed says that owners have used everything.
func (l *snapshot) textConsumed(r *v1alpha1.Reservation) string {
	switch {
	case Replicas(r) > 1:
		return fmt.Sprintf("all %d placements have been used", Replicas(r))
	case len(l.consumers) == 1:
		return fmt.Sprintf("pod %s/%s has used it", l.consumers[0].Namespace, l.consumers[0].Name)
	default:
		return "it has been used"
	}
}

// textExpired says when it expired, and what happens to what was held.
func (l *snapshot) textExpired(r *v1alpha1.Reservation) string {
	at, field := expiry(r)
	text := fmt.Sprintf("it expired at %s (spec.%s)", textTime(at), field)
	switch {
	case !at.After(r.CreationTimestamp.Time):
		return fmt.Sprintf("spec.expires, %s, had passed when it was made: make another Reservation with a later one",
			textTime(at))
	case len(l.placements) == 0:
		return text + " without a place: condition Scheduled tells why"
	case len(l.consumers) > 0:
		return fmt.Sprintf("%s: it no longer holds anything; pods that use it run on: %d", text, len(l.consumers))
	default:
		return text + ": it no longer holds anything"
	}
}

// textLost says what was lost with nodes.
func (l *snapshot) textLost(r *v1alpha1.Reservation) string {
	return fmt.Sprintf("gone: %s, and %d of %d placements with it: another place is sought; %d are held",
		textNames("node", l.lost), len(l.lost), Replicas(r), len(l.placements)-l.spent)
}

// TextNotStarted says that the start of a Reservation has not come.
func TextNotStarted(start time.Time) string {
	return fmt.Sprintf("nothing is held before spec.startTime, %s", textTime(start))
}

// textAwaited says what it waits for.
func (l *snapshot) textAwaited(r *v1alpha1.Reservation, now time.Time) string {
	if start := Start(r); now.Before(start) {
		return TextNotStarted(start)
	}
	why := "condition Scheduled tells why"
	if at := untriedAt(r); !at.IsZero() && !now.Before(at) {
		why = fmt.Sprintf("no scheduler has tried: see that a lockstep-scheduler runs, and has the profile %q that "+
			"spec.template.spec.schedulerName asks for", SchedulerName(r))
	}
	return fmt.Sprintf("%d of %d placements are held: %s; it waits until %s", len(l.placements),
		Replicas(r), why, textEnd(r))
}

// reportDelay is the longest that a scheduler takes to report why it found no place.
const reportDelay = 30 * time.Second

// untriedAt returns when a Reservation counts as not tried by any scheduler; zero if one has tried.
func untriedAt(r *v1alpha1.Reservation) time.Time {
	if meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReservationScheduled) != nil ||
		len(r.Status.Placements) > 0 {
		return time.Time{}
	}
	return Start(r).Add(reportDelay)
}

// textNames lists some of the things by name, sorted: node a, b, c and 2 more.
func textNames(what string, list []string) string {
	return what + " " + words.FirstOf(maxNames, slices.Compact(slices.Sorted(slices.Values(list))))
}
