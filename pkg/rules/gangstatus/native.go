package gangstatus

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
)

const (
	// ReasonScheduled is kube-scheduler's reason for PodGroups that have been scheduled.
	ReasonScheduled = "Scheduled"
	// ReasonNotDisrupted is the reason for PodGroups with running pods that are not being evicted.
	ReasonNotDisrupted = "NotDisrupted"
)

// NativeConditions returns what the conditions of a native PodGroup should be. Where they are that
// already, it returns them as they are.
func NativeConditions(pg *schedulingv1beta1.PodGroup, pods []*v1.Pod, f StatusFacts,
	now metav1.Time) []metav1.Condition {
	conditions := slices.Clone(pg.Status.Conditions)
	set := func(want *metav1.Condition) {
		if want == nil {
			return
		}
		if current := meta.FindStatusCondition(conditions, want.Type); current != nil {
			if ours, known := wrote(pg.ManagedFields, want.Type); known && !ours {
				return // its writer keeps it up to date
			}
			if current.Status == want.Status && current.Reason == want.Reason && current.Message == want.Message {
				return
			}
		}
		want.ObservedGeneration, want.LastTransitionTime = pg.Generation, now
		meta.SetStatusCondition(&conditions, *want)
	}
	if !meta.IsStatusConditionTrue(conditions, schedulingv1beta1.PodGroupInitiallyScheduled) { // it stays true for good
		set(initiallyScheduled(pg, f))
	}
	set(disruption(pods, meta.IsStatusConditionTrue(conditions, schedulingv1beta1.DisruptionTarget)))
	return conditions
}

// initiallyScheduled returns the condition by the pods: by their number, and where that does
// not show why they wait, by what the scheduler has written on them. It is nil without pods.
func initiallyScheduled(pg *schedulingv1beta1.PodGroup, f StatusFacts) *metav1.Condition {
	if f.All.N+f.Aside.N() == 0 {
		return nil
	}
	c := scheduled(f)
	c.Type = schedulingv1beta1.PodGroupInitiallyScheduled
	if gangspec.ReadNative(pg).MakesNoGang() {
		return basic(&c, f)
	}
	if c.Status == metav1.ConditionTrue {
		c.Reason = ReasonScheduled
	}
	f.quote(&c)
	return &c
}

// quote copies into a condition what the scheduler has written on the members, where their number does not show why
// they wait.
func (f *StatusFacts) quote(c *metav1.Condition) {
	if c.Status == metav1.ConditionTrue || f.said == nil {
		return
	}
	if c.Reason == v1alpha1.ReasonAwaitingPlacement || c.Reason == f.said.Reason || f.expired &&
		f.said.Reason == v1alpha1.ReasonTimedOut {
		c.Reason, c.Message = f.said.Reason, f.said.Message
	}
}

// basic sets the reason and message for a PodGroup whose pods are scheduled one by one.
func basic(c *metav1.Condition, f StatusFacts) *metav1.Condition {
	switch {
	case c.Status == metav1.ConditionTrue:
		c.Reason, c.Message = ReasonScheduled, fmt.Sprintf("PodGroup %q has a pod bound; its pods are scheduled one by one",
			f.Key)
	case f.said != nil:
		c.Reason, c.Message = f.said.Reason, f.said.Message
	default:
		c.Reason, c.Message = v1alpha1.ReasonAwaitingPlacement,
			fmt.Sprintf("no pod of PodGroup %q is bound; its pods are scheduled one by one", f.Key)
	}
	return c
}

// disruption returns the condition whether all pods on nodes are being preempted; nil where they are not, and were not.
func disruption(pods []*v1.Pod, was bool) *metav1.Condition {
	var target *v1.PodCondition
	for _, pod := range pods {
		if !objectstate.OccupiesNode(pod) {
			continue
		}
		c := objectstate.PodCondition(pod, v1.DisruptionTarget)
		if c == nil || c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonPreemptionByScheduler {
			if !was {
				return nil
			}
			return &metav1.Condition{
				Type: schedulingv1beta1.DisruptionTarget, Status: metav1.ConditionFalse, Reason: ReasonNotDisrupted,
				Message: "pods of the PodGroup are running that are not being preempted",
			}
		}
		if target == nil {
			target = c
		}
	}
	if target == nil {
		return nil
	}
	return &metav1.Condition{
		Type: schedulingv1beta1.DisruptionTarget, Status: metav1.ConditionTrue,
		Reason: schedulingv1beta1.PodGroupReasonPreemptionByScheduler, Message: target.Message,
	}
}
