package reservation

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

// named is how many nodes a message names.
const named = 3

// ready returns the condition that owners find all that they were promised. It follows from the phase in
// the status; why a place is sought again is remembered in the condition itself.
func (l *standing) ready(r *v1alpha1.Reservation, status v1alpha1.ReservationStatus, now time.Time) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ReservationReady, Status: metav1.ConditionFalse}
	was := meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReservationReady)
	switch {
	case status.Phase == v1alpha1.ReservationAvailable:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReservationReasonAvailable, l.held(r)
	case status.Phase == v1alpha1.ReservationSucceeded:
		c.Reason, c.Message = v1alpha1.ReservationReasonSucceeded, l.consumed(r)
	case status.Phase == v1alpha1.ReservationFailed && r.DeletionTimestamp != nil:
		c.Reason, c.Message = v1alpha1.ReservationReasonDeleted, "it is being deleted: nothing is held any more"
	case status.Phase == v1alpha1.ReservationFailed:
		c.Reason, c.Message = v1alpha1.ReservationReasonExpired, l.ran(r)
	case len(l.lost) > 0:
		c.Reason, c.Message = v1alpha1.ReservationReasonNodeLost, l.gone(r)
	case was != nil && was.Reason == v1alpha1.ReservationReasonNodeLost:
		c.Reason, c.Message = was.Reason, was.Message
	default:
		c.Reason, c.Message = v1alpha1.ReservationReasonPending, l.awaited(r, now)
	}
	return c
}

// held says what is held, and until when.
func (l *standing) held(r *v1alpha1.Reservation) string {
	text := fmt.Sprintf("%d placements are held", len(l.placements))
	switch {
	case len(l.placements) == 1:
		text = fmt.Sprintf("it is held on node %s", l.placements[0].NodeName)
	case l.spent > 0:
		text = fmt.Sprintf("%d of %d placements used; the others are held", l.spent, len(l.placements))
	}
	text += " until " + until(r)
	if len(l.cordoned) > 0 {
		text += fmt.Sprintf("; cordoned, and still held: %s: owners come there after kubectl uncordon", names("node", l.cordoned))
	}
	if len(l.notReady) > 0 {
		text += fmt.Sprintf("; not ready, and still held: %s: owners come there when kubelet reports again; if it does not, delete the node", names("node", l.notReady))
	}
	return text
}

func until(r *v1alpha1.Reservation) string {
	if at := Expiry(r); !at.IsZero() {
		return stamp(at)
	}
	return "it is deleted"
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// consumed says that everything was used by an owner.
func (l *standing) consumed(r *v1alpha1.Reservation) string {
	switch {
	case Replicas(r) > 1:
		return fmt.Sprintf("all %d placements have been used", Replicas(r))
	case len(l.consumers) == 1:
		return fmt.Sprintf("pod %s/%s has used it", l.consumers[0].Namespace, l.consumers[0].Name)
	default:
		return "it has been used"
	}
}

// ran says when it expired, and what becomes of what was held.
func (l *standing) ran(r *v1alpha1.Reservation) string {
	at, field := expiry(r)
	text := fmt.Sprintf("it expired at %s (spec.%s)", stamp(at), field)
	switch {
	case !at.After(r.CreationTimestamp.Time):
		return fmt.Sprintf("spec.expires, %s, had passed when it was made: make another Reservation with a later one", stamp(at))
	case len(l.placements) == 0:
		return text + " without a place: condition Scheduled tells why"
	case len(l.consumers) > 0:
		return fmt.Sprintf("%s: nothing is held any more; pods that use it run on: %d", text, len(l.consumers))
	default:
		return text + ": nothing is held any more"
	}
}

// gone says what was lost with nodes.
func (l *standing) gone(r *v1alpha1.Reservation) string {
	return fmt.Sprintf("gone: %s, and %d of %d placements with it: another place is sought; %d are held",
		names("node", l.lost), len(l.lost), Replicas(r), len(l.placements)-l.spent)
}

// awaited says what it waits for.
func (l *standing) awaited(r *v1alpha1.Reservation, now time.Time) string {
	if start := Start(r); now.Before(start) {
		return fmt.Sprintf("nothing is held before spec.startTime, %s", stamp(start))
	}
	why := "condition Scheduled tells why"
	if at := unheardOf(r); !at.IsZero() && !now.Before(at) {
		why = fmt.Sprintf("no scheduler has tried: see that a lockstep-scheduler runs, and has the profile %q that spec.template.spec.schedulerName asks for",
			cmp.Or(r.Spec.Template.Spec.SchedulerName, DefaultScheduler))
	}
	return fmt.Sprintf("%d of %d placements are held: %s; it waits until %s", len(l.placements), Replicas(r), why, until(r))
}

// silence is how long a scheduler takes at most to report why it found no place.
const silence = 30 * time.Second

// unheardOf returns when a Reservation counts as one that no scheduler has tried; zero if one has.
func unheardOf(r *v1alpha1.Reservation) time.Time {
	if meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReservationScheduled) != nil || len(r.Status.Placements) > 0 {
		return time.Time{}
	}
	return Start(r).Add(silence)
}

// names lists things, sorted, a few of them by name: node a, b, c and 2 more.
func names(what string, list []string) string {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	text := what + " " + strings.Join(list[:min(len(list), named)], ", ")
	if more := len(list) - named; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
