package podgroup

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// FieldOwner is the field manager of what this package writes.
const FieldOwner = "lockstep-controller"

// conditions is what the conditions should be. Those of others stay.
func (pg *podGroup) conditions(f facts, now metav1.Time) []metav1.Condition {
	want := scheduled(f)
	want.ObservedGeneration = pg.Generation
	want.LastTransitionTime = now
	conditions := slices.Clone(pg.Status.Conditions)
	meta.SetStatusCondition(&conditions, want)
	return conditions
}

// scheduled is the condition Scheduled. It follows from the pods alone: from counting them, and from
// what the scheduler says in their status of why they wait, where that can be so.
func scheduled(f facts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionScheduled, Status: metav1.ConditionFalse}
	told := f.told()
	// Under only-waiting, what is bound is no answer to those that wait.
	wave := f.policy == gang.OnlyWaiting && f.waiting > 0 && told
	switch {
	case f.minimum.n == 0:
		c.Reason, c.Message = v1alpha1.ReasonGangUndefined, gang.TextUndefined(f.key)
	case f.bound.reaches(f.minimum) && !wave:
		c.Status = metav1.ConditionTrue
		c.Reason = v1alpha1.ReasonMinimumBound
		c.Message = fmt.Sprintf("gang %q has its minimum of %d members bound", f.key, f.minimum.n)
	case told:
		c.Reason, c.Message = f.reason, f.message
	case !f.members.reaches(f.minimum):
		c.Reason, c.Message = v1alpha1.ReasonGangIncomplete, incomplete(f)
	default:
		c.Reason, c.Message = v1alpha1.ReasonAwaitingPlacement, gang.TextAwaiting(f.key, f.minimum.n)
	}
	return c
}

// told reports whether the scheduler says of members why they wait, and counting does not speak
// against it: a pod may say for a moment what was so before.
func (f facts) told() bool {
	switch f.reason {
	case "", v1alpha1.ReasonGangUndefined:
		return false // there is a minimum by now
	case v1alpha1.ReasonTimedOut:
		return f.expired
	case v1alpha1.ReasonGangIncomplete:
		return true // maybe another gang of its group is, or pods name other schedulers
	default:
		return f.members.reaches(f.minimum)
	}
}

// incomplete says what is missing.
func incomplete(f facts) string {
	if f.members.n >= f.minimum.n {
		return gang.TextLacks(f.key, f.members.lacks(f.minimum))
	}
	var aside []string
	if f.gated > 0 {
		aside = append(aside, gang.TextGated(f.gated))
	}
	if f.failed > 0 {
		aside = append(aside, fmt.Sprintf("%d failed", f.failed))
	}
	return gang.TextIncomplete(f.key, f.members.n, f.minimum.n, aside...)
}
