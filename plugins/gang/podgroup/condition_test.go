package podgroup

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

func condition(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: v1alpha1.ConditionScheduled, Status: status, Reason: reason, Message: message}
}

// saying has pods say in their status why they wait. Those that say something else are left alone.
func saying(c *metav1.Condition, list []*v1.Pod) []*v1.Pod {
	return with(list, func(_ int, p *v1.Pod) {
		if p.Spec.NodeName == "" {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message}}
		}
	})
}

// TestCondition: what is said follows from the pods, whatever was said before.
func TestCondition(t *testing.T) {
	var (
		awaiting    = condition("False", v1alpha1.ReasonAwaitingPlacement, `gang "team/train" has its minimum of 2 members and waits for nodes`)
		bound       = condition("True", v1alpha1.ReasonMinimumBound, `gang "team/train" has its minimum of 2 members bound`)
		none        = condition("False", v1alpha1.ReasonGangIncomplete, `gang "team/train" has 0 of 2 members`)
		one         = condition("False", v1alpha1.ReasonGangIncomplete, `gang "team/train" has 1 of 2 members`)
		short       = condition("False", v1alpha1.ReasonUnschedulable, "rack r1: 1 of 2 members fit")
		tried       = condition("False", v1alpha1.ReasonUnschedulable, "0/4 nodes are available: rack r1: 1 of 2 members fit. preemption: no victims.")
		failed      = condition("False", v1.PodReasonSchedulerError, "trouble")
		timedOut    = condition("False", v1alpha1.ReasonTimedOut, "waited 5s")
		otherGang   = condition("False", v1alpha1.ReasonGangIncomplete, "waits for its group")
		undefined   = condition("False", v1alpha1.ReasonGangUndefined, "its PodGroup does not exist")
		queue       = condition("False", "QueueClosed", `queue "b" is closed`)
		unusable    = condition("False", "no reason", "of a scheduler that nobody knows")
		onlyWaiting = func(list []*v1.Pod) []*v1.Pod {
			return with(list, func(_ int, p *v1.Pod) {
				p.Annotations[v1alpha1.MinAvailableAnnotation] = "2"
				p.Annotations[v1alpha1.MatchPolicyAnnotation] = v1alpha1.MatchOnlyWaiting
			})
		}
		first = func(c *metav1.Condition, list []*v1.Pod) []*v1.Pod {
			saying(c, list[:1])
			return list
		}
	)
	for name, tc := range map[string]struct {
		pods []*v1.Pod
		want *metav1.Condition
	}{
		"no pods":                            {nil, none},
		"members are missing":                {pods("waiting"), one},
		"a gate keeps a member back":         {pods("waiting", "gated"), condition("False", v1alpha1.ReasonGangIncomplete, one.Message+" (and 1 with scheduling gates)")},
		"a member failed":                    {pods("running", "failed"), condition("False", v1alpha1.ReasonGangIncomplete, one.Message+" (and 1 failed)")},
		"complete":                           {pods("waiting", "waiting"), awaiting},
		"the scheduler's explanation stands": {saying(short, pods("waiting", "waiting")), short},
		"in plain words, as all but the first say it":      {first(tried, saying(short, pods("waiting", "waiting"))), short},
		"before these say it, it is not told":              {first(tried, pods("waiting", "waiting")), awaiting},
		"also that it cannot be planned":                   {first(tried, saying(failed, pods("waiting", "waiting"))), failed},
		"one that waits alone says it in all words":        {saying(tried, pods("running", "waiting")), tried},
		"not against facts":                                {saying(short, pods("waiting")), one},
		"and it is over when they are bound":               {saying(short, pods("bound", "bound")), bound},
		"timed out members are no news":                    {saying(timedOut, pods("expired", "expired")), timedOut},
		"nor is one of them deleted":                       {saying(timedOut, pods("expired")), timedOut},
		"replaced members are":                             {pods("waiting"), one},
		"and those that are to be tried again":             {saying(timedOut, pods("waiting", "waiting")), awaiting},
		"the scheduler knows of other gangs":               {saying(otherGang, pods("waiting", "waiting")), otherGang},
		"and of its own members":                           {saying(otherGang, pods("waiting")), otherGang},
		"and of queues":                                    {saying(queue, pods("waiting", "waiting")), queue},
		"but not of members that are missing":              {saying(queue, pods("waiting")), one},
		"a PodGroup made anew has a minimum":               {saying(undefined, pods("waiting", "waiting")), awaiting},
		"also where members are missing":                   {saying(undefined, pods("waiting")), one},
		"what cannot be a condition is left aside":         {first(unusable, saying(otherGang, pods("waiting", "waiting"))), otherGang},
		"what pods with gates say, too":                    {saying(short, pods("running", "gated")), condition("False", v1alpha1.ReasonGangIncomplete, one.Message+" (and 1 with scheduling gates)")},
		"bound":                                            {pods("bound", "bound"), bound},
		"bound and more":                                   {saying(short, pods("bound", "running", "waiting")), bound},
		"succeeded":                                        {pods("succeeded", "succeeded"), bound},
		"a part is lost":                                   {pods("running"), one},
		"its successor waits":                              {pods("running", "waiting"), awaiting},
		"what is bound is no answer to a batch that waits": {saying(short, onlyWaiting(pods("running", "running", "waiting", "waiting"))), short},
		"until it is bound":                                {onlyWaiting(pods("running", "running", "bound", "bound")), bound},
	} {
		t.Run(name, func(t *testing.T) {
			for _, was := range []*metav1.Condition{nil, awaiting, bound, one, short, timedOut, otherGang} {
				pg := group(2, "")
				if was != nil {
					pg.Status.Conditions = []metav1.Condition{*was}
				}
				pg.Status.Conditions = append(pg.Status.Conditions, metav1.Condition{Type: "Other", Status: "True", Reason: "Foreign"})
				got := pg.after(tc.pods).Conditions
				if len(got) != 2 {
					t.Fatalf("conditions %v, want Scheduled and the one of somebody else", got)
				}
				for i := range got {
					if got[i].Type == v1alpha1.ConditionScheduled {
						if diff := cmp.Diff(*tc.want, got[i], cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "ObservedGeneration")); diff != "" {
							t.Errorf("after %v: condition (-want +got):\n%s", was, diff)
						}
					}
				}
			}
		})
	}
}

func TestConditionWithoutMinimum(t *testing.T) {
	got := group(0, "").after(nil).Conditions
	if len(got) != 1 || got[0].Reason != v1alpha1.ReasonGangUndefined {
		t.Errorf("conditions %v, want one with reason %s", got, v1alpha1.ReasonGangUndefined)
	}
}

func TestConditionWithRoles(t *testing.T) {
	roles := func(words, names []string) []*v1.Pod {
		return with(pods(words...), func(i int, p *v1.Pod) { p.Labels[v1alpha1.RoleLabel] = names[i] })
	}
	pg := group(3, "")
	pg.Annotations = map[string]string{v1alpha1.MinByRoleAnnotation: `{"launcher": 1, "worker": 2}`}
	for name, tc := range map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"a role is missing": {roles([]string{"waiting", "waiting", "waiting"}, []string{"worker", "worker", "worker"}),
			`gang "team/train" lacks 1 more of role launcher`},
		"a role is not bound": {roles([]string{"bound", "bound", "bound", "waiting"}, []string{"worker", "worker", "worker", "launcher"}),
			`gang "team/train" has its minimum of 3 members and waits for nodes`},
		"all are bound": {roles([]string{"bound", "bound", "bound"}, []string{"worker", "worker", "launcher"}),
			`gang "team/train" has its minimum of 3 members bound`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := pg.after(tc.pods).Conditions[0].Message; got != tc.want {
				t.Errorf("message %q, want %q", got, tc.want)
			}
		})
	}
	elastic := group(2, "")
	elastic.Annotations = pg.Annotations
	if got := elastic.after(pods("bound", "bound")).Conditions[0].Status; got != metav1.ConditionTrue {
		t.Errorf("an elastic gang without its roles: %s, want True", got)
	}
}

// A message depends on numbers only where it states them.
func TestMessageStaysWhileFactsDo(t *testing.T) {
	seen := map[string]bool{}
	for extra := range 5 {
		words := []string{"running", "running"}
		for range extra {
			words = append(words, "waiting")
		}
		seen[group(2, "").after(pods(words...)).Conditions[0].Message] = true
	}
	if len(seen) != 1 {
		t.Errorf("messages: %v, want one", fmt.Sprint(seen))
	}
}
