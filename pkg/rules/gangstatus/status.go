package gangstatus

import (
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// Status is the state of a gang as far as the API shows it. For a gang with a PodGroup it is what the controller
// writes into its status.
type Status struct {
	// Spec is what the gang asks for, without what depends on the scheduler's configuration.
	Spec gangspec.Spec
	// PodGroups are what its PodGroups say.
	PodGroups gangspec.PodGroups
	Phase     schedulingv1alpha1.PodGroupPhase
	// Minimum is how many members must be bound together, in the present stage of a gang with stages; 0 if undefined.
	Minimum int
	// Members can make up the minimum; Bound are those of them that have a node or had one to the end.
	Members, Bound             int
	Running, Succeeded, Failed int
	// Lead, Held and Nodes are those of [gangstate.Facts].
	Lead  *v1.Pod
	Held  int
	Nodes sets.Set[string]
	// Reason and Message are why it waits, or that its minimum is bound.
	Reason, Message string
}

// Of returns the state of a gang, by all its pods and the PodGroups of its name, each of which may be nil.
func Of(key gangspec.Key, group *coscheduling.PodGroup, native *schedulingv1beta1.PodGroup,
	pods []*v1.Pod) Status {
	var groups gangspec.PodGroups
	if group != nil {
		groups.Read(group)
	}
	if native != nil {
		groups.Read(native)
	}
	object := groups.Object()
	f := FactsOf(key, object, pods, gangstate.RecordedHistory(object))
	c, was := scheduled(f), schedulingv1alpha1.PodGroupPhase("")
	f.quote(&c)
	switch {
	case group != nil:
		was = group.Status.Phase
		// What counting does not show, the scheduler has written, on the gang or else on its members.
		if stored := meta.FindStatusCondition(conditionsOf(group, f, metav1.Time{}),
			v1alpha1.ConditionScheduled); stored.Reason != v1alpha1.ReasonAwaitingPlacement {
			c = *stored
		}
	case native != nil:
		was = phaseBefore(native)
		stored := meta.FindStatusCondition(NativeConditions(native, nil, f, metav1.Time{}),
			schedulingv1beta1.PodGroupInitiallyScheduled)
		if stored != nil && stored.Status == metav1.ConditionFalse { // once true, it stays true
			c = *stored
		}
	}
	phase := phaseOf(was, f)
	if group != nil && cleanedUp(group.Status, f) {
		phase = was
		if stored := meta.FindStatusCondition(group.Status.Conditions, v1alpha1.ConditionScheduled); stored != nil {
			c = *stored
		}
	}
	return Status{
		Lead: f.Lead, Held: f.Held, Nodes: f.Nodes, Spec: f.Spec, PodGroups: groups, Phase: phase, Minimum: f.Stage.Min,
		Members: f.Members.N, Bound: f.Bound.N,
		Running: int(f.running), Succeeded: int(f.Succeeded), Failed: int(f.Failed),
		Reason: c.Reason, Message: c.Message,
	}
}

// phaseBefore returns what is known of the phase of a gang whose PodGroup has none: whether it ever had its minimum.
func phaseBefore(native *schedulingv1beta1.PodGroup) schedulingv1alpha1.PodGroupPhase {
	if meta.IsStatusConditionTrue(native.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled) {
		return Scheduled
	}
	return ""
}
