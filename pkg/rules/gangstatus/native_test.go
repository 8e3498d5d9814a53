package gangstatus

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// saying returns pods whose status has why they wait, with one message each.
func saying(reason string, texts ...string) []*v1.Pod {
	return with(pods(slices.Repeat([]string{"waiting"}, len(texts))...), func(i int, p *v1.Pod) {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: texts[i]}}
	})
}

// preempted marks pods as being preempted.
func preempted(list []*v1.Pod) []*v1.Pod {
	return with(list, func(_ int, p *v1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler, Message: "for others"})
	})
}

func TestNativeConditions(t *testing.T) {
	const initially, target = schedulingv1beta1.PodGroupInitiallyScheduled, schedulingv1beta1.DisruptionTarget
	is := func(of string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: of, Status: status, Reason: reason, Message: message}
	}
	var (
		one      = is(initially, "False", v1alpha1.ReasonGangIncomplete, `gang "team/train" has 1 of 2 members`)
		awaiting = is(initially, "False", v1alpha1.ReasonAwaitingPlacement, `gang "team/train" has its minimum of 2 members and waits for nodes`)
		short    = is(initially, "False", v1alpha1.ReasonUnschedulable, `gang "team/train": 1 of 2 members fit`)
		done     = is(initially, "True", ReasonScheduled, `gang "team/train" has its minimum of 2 members bound`)
		theirs   = is(initially, "False", v1alpha1.ReasonUnschedulable, "theirs")
		doomed   = is(target, "True", "PreemptionByScheduler", "for others")
		spared   = is(target, "False", ReasonNotDisrupted, "pods of the PodGroup are running that are not being preempted")
	)
	basic := schedulingv1beta1.PodGroupSchedulingPolicy{Basic: &schedulingv1beta1.BasicSchedulingPolicy{}}
	for sentence, c := range map[string]struct {
		policy schedulingv1beta1.PodGroupSchedulingPolicy
		claims bool
		was    []metav1.Condition
		by     string
		pods   []*v1.Pod
		want   []metav1.Condition
	}{
		"without pods there is nothing to say": {},
		"members are missing":                  {pods: pods("waiting"), want: []metav1.Condition{one}},
		"complete":                             {pods: pods("waiting", "waiting"), want: []metav1.Condition{awaiting}},
		"the gang's words go before its leader's": {
			pods: saying("Unschedulable", `0/2 nodes are available: `+short.Message, short.Message), want: []metav1.Condition{short},
		},
		"its leader's are not quoted where the leader alone has any": {
			pods: append(saying("Unschedulable", `0/2 nodes are available: `+short.Message+`. preemption: no victims: none would do.`), pods("waiting", "waiting")[1:]...),
			want: []metav1.Condition{short},
		},
		"nor without preemption": {
			pods: saying("Unschedulable", `0/2 nodes are available: `+short.Message+`.`, `0/2 nodes are available: `+short.Message+`.`), want: []metav1.Condition{short},
		},
		"what members say stands":          {pods: saying("GangIncomplete", one.Message, one.Message), want: []metav1.Condition{one}},
		"a queue keeps it":                 {pods: saying("QueueOverused", "kept", "kept"), want: []metav1.Condition{is(initially, "False", "QueueOverused", "kept")}},
		"bound":                            {was: []metav1.Condition{awaiting}, by: gangspec.LockstepController, pods: pods("bound", "bound"), want: []metav1.Condition{done}},
		"which is for good":                {was: []metav1.Condition{done}, by: gangspec.LockstepController, pods: pods("waiting"), want: []metav1.Condition{done}},
		"what kube-scheduler wrote stands": {was: []metav1.Condition{theirs}, by: "kube-scheduler", pods: pods("waiting"), want: []metav1.Condition{theirs}},
		"claims":                           {claims: true, pods: pods("waiting"), want: []metav1.Condition{is(initially, "False", v1alpha1.ReasonGangUnsupported, "")}},
		"one by one, none is bound":        {policy: basic, pods: pods("waiting"), want: []metav1.Condition{is(initially, "False", v1alpha1.ReasonAwaitingPlacement, `no pod of PodGroup "team/train" is bound; its pods are scheduled one by one`)}},
		"one by one, none fits":            {policy: basic, pods: saying("Unschedulable", "0/2 nodes"), want: []metav1.Condition{is(initially, "False", "Unschedulable", "0/2 nodes")}},
		"one by one, one is bound":         {policy: basic, pods: pods("bound", "waiting"), want: []metav1.Condition{is(initially, "True", ReasonScheduled, `PodGroup "team/train" has a pod bound; its pods are scheduled one by one`)}},
		"all are preempted":                {was: []metav1.Condition{done}, by: gangspec.LockstepController, pods: preempted(pods("running", "running")), want: []metav1.Condition{done, doomed}},
		"not all are": {
			was: []metav1.Condition{done}, by: gangspec.LockstepController, pods: append(preempted(pods("running")), pods("waiting", "running", "running")[1:]...), want: []metav1.Condition{done},
		},
		"it is over":                  {was: []metav1.Condition{done, doomed}, by: gangspec.LockstepController, pods: pods("running", "running"), want: []metav1.Condition{done, spared}},
		"they are gone, and it stays": {was: []metav1.Condition{done, doomed}, by: gangspec.LockstepController, pods: pods("waiting"), want: []metav1.Condition{done, doomed}},
	} {
		t.Run(sentence, func(t *testing.T) {
			pg := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
			pg.Spec.SchedulingPolicy = c.policy
			if c.policy.Basic == nil {
				pg.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
			}
			if c.claims {
				pg.Spec.ResourceClaims = []schedulingv1beta1.PodGroupResourceClaim{{Name: "gpu"}}
			}
			pg.Status.Conditions = c.was
			if c.by != "" {
				pg.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: c.by, FieldsV1: metav1.NewFieldsV1(
					`{"f:status":{"f:conditions":{"k:{\"type\":\"` + initially + `\"}":{"f:message":{}},"k:{\"type\":\"` + target + `\"}":{"f:message":{}}}}}`)}}
			}
			after := func(now time.Time) []metav1.Condition {
				f := FactsOf(key, gangspec.ReadNative(pg), c.pods, &gangstate.History{})
				return NativeConditions(pg, c.pods, f, metav1.NewTime(now))
			}
			got := after(epoch)
			ignore := cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime")
			if c.claims {
				ignore = cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "Message")
			}
			if diff := cmp.Diff(c.want, got, ignore, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("conditions (-want +got):\n%s", diff)
			}
			pg.Status.Conditions = got
			if diff := cmp.Diff(got, after(epoch.Add(time.Hour)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("a second write (-was +is):\n%s", diff)
			}
		})
	}
}
