package gangstatus

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

// conditionsOf returns what the conditions should be. Where they are that already, it
// returns them as they are.
func conditionsOf(pg *coscheduling.PodGroup, f StatusFacts, now metav1.Time) []metav1.Condition {
	want := scheduled(f)
	current := meta.FindStatusCondition(pg.Status.Conditions, v1alpha1.ConditionScheduled)
	if current != nil && !isOurs(pg, current) && isLeft(current, want, f) {
		return pg.Status.Conditions
	}
	// What the scheduler has written on the pods holds. For a gang that runs with less than its minimum it writes nothing
	// here, and what it had written here may have been replaced before all members were seen.
	if f.Bound.N > 0 || f.refused {
		f.quote(&want)
	}
	want.ObservedGeneration = pg.Generation
	want.LastTransitionTime = now
	conditions := slices.Clone(pg.Status.Conditions)
	meta.SetStatusCondition(&conditions, want)
	return conditions
}

// scheduled returns the condition as far as counting decides it.
func scheduled(f StatusFacts) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionScheduled, Status: metav1.ConditionFalse}
	switch {
	case f.JobFailed != "":
		c.Reason, c.Message = v1alpha1.ReasonJobFailed, f.JobFailed
	case f.Spec.Refused != "":
		c.Reason, c.Message = v1alpha1.ReasonGangUnsupported, gangstate.TextRefused(f.Key, f.Spec.Refused)
	case f.Stage.Min == 0:
		c.Reason, c.Message = v1alpha1.ReasonGangUndefined, gangstate.TextUndefined(f.Key, f.madeFor)
	case f.Bound.Reaches(&f.Stage):
		c.Status = metav1.ConditionTrue
		c.Reason = v1alpha1.ReasonMinimumBound
		c.Message = minimumBound(f)
	case !f.Members.Reaches(&f.Stage):
		c.Reason, c.Message = v1alpha1.ReasonGangIncomplete, incomplete(f)
	default:
		c.Reason, c.Message = v1alpha1.ReasonAwaitingPlacement, gangstate.TextAwaiting(f.Key, f.Stage.Min)
		if f.byDefault > 0 {
			c.Message += gangstate.TextDefaultScheduler(f.byDefault)
		}
	}
	return c
}

// minimumBound returns the message for a gang of which a stage is bound: what is still to come.
func minimumBound(f StatusFacts) string {
	text := fmt.Sprintf("gang %q has its minimum of %d members%s bound", f.Key, f.Stage.Min,
		gangstate.TextStage(f.Stage.Stage()))
	if later := f.later(); later > 0 {
		text += fmt.Sprintf("; its workload makes %d more later", later)
	}
	return text
}

// incomplete returns the message for what is missing.
func incomplete(f StatusFacts) string {
	if f.Members.N >= f.Stage.Min {
		return gangstate.TextLacks(f.Key, &f.Stage, f.Members)
	}
	aside := f.Aside.Texts()
	if n := f.Failed - len(f.RefusedByKubelet); n > 0 {
		aside = append(aside, fmt.Sprintf("%d failed", n))
	}
	if text := gangstate.TextRefusedByKubelet(f.RefusedByKubelet); text != "" {
		aside = append(aside, text)
	}
	return gangstate.TextIncomplete(f.Key, f.Members.N, f.Stage.Min, gangstate.TextStage(f.Stage.Stage()), aside...)
}

// isLeft reports whether a condition of another writer is left, although counting
// would put want there. Two writers that both insist on their view would write
// for ever; so the other's condition stands wherever it may know more.
func isLeft(current *metav1.Condition, want metav1.Condition, f StatusFacts) bool {
	if current.Status != metav1.ConditionFalse {
		return false
	}
	if current.Reason == v1alpha1.ReasonEvicted {
		return !f.hasOtherPods() && !(f.OwnerEnded && f.unfinished == 0)
	}
	switch want.Reason {
	case v1alpha1.ReasonAwaitingPlacement:
		return true
	case v1alpha1.ReasonGangIncomplete:
		// To the scheduler, members whose time ran out are no members, and it writes that.
		return current.Reason == want.Reason || (current.Reason == v1alpha1.ReasonTimedOut && f.expired)
	case v1alpha1.ReasonMinimumBound:
		// Where running members do not count, bound members do not explain why others wait.
		return !f.Spec.Policy.CountsRunning() && f.waiting > 0
	default:
		return current.Reason == want.Reason
	}
}

// isOurs reports whether lockstep-controller wrote the condition as it stands, alone or in
// the same words as another writer. Where the field managers are not known, the
// reason has to decide.
func isOurs(pg *coscheduling.PodGroup, current *metav1.Condition) bool {
	ours, known := wrote(pg.ManagedFields, current.Type)
	return ours || !known && current.Reason != v1alpha1.ReasonUnschedulable &&
		current.Reason != v1alpha1.ReasonTimedOut && current.Reason != v1alpha1.ReasonEvicted
}

// wrote reports whether lockstep-controller wrote a condition as it stands; known is false where the
// field managers do not show the writer.
func wrote(managers []metav1.ManagedFieldsEntry, conditionType string) (ours, known bool) {
	writers := objectstate.Writers(managers,
		fieldpath.MakePathOrDie("status", "conditions", fieldpath.KeyByFields("type", conditionType), "message"))
	return slices.Contains(writers, gangspec.LockstepController), len(writers) > 0
}
