package gangstatus

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

func condition(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
	return &metav1.Condition{Type: v1alpha1.ConditionScheduled, Status: status, Reason: reason, Message: message}
}

// managed returns the API server's record of the writer of a condition's message.
func managed(by string) []metav1.ManagedFieldsEntry {
	const owns = `{"f:status":{"f:conditions":{"k:{\"type\":\"Scheduled\"}":{".":{},"f:message":{}}}}}`
	return []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:minMember":{}}}`)},
		{Manager: by, Subresource: "status", FieldsV1: metav1.NewFieldsV1(owns)},
	}
}

func TestCondition(t *testing.T) {
	const scheduler = "lockstep-scheduler"
	var (
		awaiting  = condition("False", v1alpha1.ReasonAwaitingPlacement, `gang "team/train" has its minimum of 2 members and waits for nodes`)
		left      = condition("False", v1alpha1.ReasonAwaitingPlacement, awaiting.Message+"; 2 of them name the scheduler default-scheduler, which knows no gangs unless it is Lockstep's: set spec.schedulerName: lockstep-scheduler")
		bound     = condition("True", v1alpha1.ReasonMinimumBound, `gang "team/train" has its minimum of 2 members bound`)
		one       = condition("False", v1alpha1.ReasonGangIncomplete, `gang "team/train" has 1 of 2 members`)
		short     = condition("False", v1alpha1.ReasonUnschedulable, "rack r1: 1 of 2 members fit")
		timedOut  = condition("False", v1alpha1.ReasonTimedOut, "waited 5s")
		otherGang = condition("False", v1alpha1.ReasonGangIncomplete, "waits for its group")
		evicted   = condition("False", v1alpha1.ReasonEvicted, "for another gang")
		ending    = func(list []*v1.Pod) []*v1.Pod { // those on nodes
			return with(list, func(_ int, p *v1.Pod) {
				if p.Spec.NodeName != "" {
					p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue})
				}
			})
		}
		onlyWaiting = func(list []*v1.Pod) []*v1.Pod {
			return with(list, func(_ int, p *v1.Pod) {
				p.Annotations[v1alpha1.MinAvailableAnnotation] = "2"
				p.Annotations[v1alpha1.MatchPolicyAnnotation] = v1alpha1.MatchOnlyWaiting
			})
		}
	)
	noRoom := pods("running", "refused")
	noRoom[1].Status.Conditions[0].Message = short.Message
	tried := with(pods("refused", "refused"), func(_ int, p *v1.Pod) { p.Status.Conditions[0].Message = short.Message })
	for name, tc := range map[string]struct {
		was  *metav1.Condition
		by   string
		pods []*v1.Pod
		want *metav1.Condition
	}{
		"members are missing":                              {nil, "", pods("waiting"), one},
		"a claim of a member is not made yet":              {nil, "", pods("waiting", "claimless"), condition("False", v1alpha1.ReasonGangIncomplete, one.Message+" (and 1 without ResourceClaims from their template)")},
		"a gate keeps a member back":                       {nil, "", pods("waiting", "gated"), condition("False", v1alpha1.ReasonGangIncomplete, one.Message+" (and 1 with scheduling gates)")},
		"a member asks for what no pod can have":           {nil, "", pods("waiting", "impossible"), condition("False", v1alpha1.ReasonGangIncomplete, one.Message+" (and 1 with impossible requests: pod train-1: spec.containers[0].resources.requests[cpu] is 1e18: want at most 1T)")},
		"a member failed":                                  {bound, gangspec.LockstepController, pods("running", "failed"), condition("False", v1alpha1.ReasonGangIncomplete, one.Message+" (and 1 failed)")},
		"a kubelet refused one":                            {bound, gangspec.LockstepController, pods("running", "refused by kubelet"), condition("False", v1alpha1.ReasonGangIncomplete, one.Message+" (and 1 refused: pod train-1: Refused by the kubelet of node: OutOfcpu (no cpu))")},
		"one failed, and two were refused":                 {bound, gangspec.LockstepController, pods("running", "failed", "refused by kubelet", "refused by kubelet"), condition("False", v1alpha1.ReasonGangIncomplete, one.Message+" (and 1 failed; 2 refused: pod train-3: Refused by the kubelet of node: OutOfcpu (no cpu))")},
		"one was refused, and another is there":            {one, gangspec.LockstepController, pods("running", "refused by kubelet", "running"), bound},
		"complete":                                         {one, gangspec.LockstepController, pods("waiting", "waiting"), awaiting},
		"complete, and nothing was said":                   {nil, "", pods("waiting", "waiting"), awaiting},
		"another scheduler has them":                       {nil, "", with(pods("waiting", "waiting"), func(_ int, p *v1.Pod) { p.Spec.SchedulerName = v1.DefaultSchedulerName }), left},
		"the scheduler's explanation stands":               {short, scheduler, pods("refused", "refused"), short},
		"also where managers are unknown":                  {short, "", pods("refused", "refused"), short},
		"and is there again once all are seen":             {one, gangspec.LockstepController, tried, short},
		"not against facts":                                {short, scheduler, pods("refused"), one},
		"and it is over when they are bound":               {short, scheduler, pods("bound", "bound"), bound},
		"timed out members are no news":                    {timedOut, scheduler, pods("expired", "expired"), timedOut},
		"nor is one of them deleted":                       {timedOut, scheduler, pods("expired"), timedOut},
		"replaced members are":                             {timedOut, scheduler, pods("waiting"), one},
		"the scheduler knows of other gangs":               {otherGang, scheduler, pods("waiting", "waiting"), otherGang},
		"and of its own members":                           {otherGang, scheduler, pods("waiting"), otherGang},
		"that it was evicted stands while its pods end":    {evicted, scheduler, ending(pods("running", "running")), evicted},
		"and while it has none":                            {evicted, "", nil, evicted},
		"not when the first of the next is there":          {evicted, scheduler, ending(pods("running", "waiting")), awaiting},
		"nor when all are":                                 {evicted, scheduler, pods("waiting", "waiting"), awaiting},
		"nor where they run on":                            {evicted, scheduler, pods("running", "running"), bound},
		"bound":                                            {awaiting, gangspec.LockstepController, pods("bound", "bound"), bound},
		"bound and more":                                   {bound, gangspec.LockstepController, pods("bound", "running", "waiting"), bound},
		"succeeded":                                        {bound, gangspec.LockstepController, pods("succeeded", "succeeded"), bound},
		"a part is lost":                                   {bound, gangspec.LockstepController, pods("running"), one},
		"its successor waits":                              {one, gangspec.LockstepController, pods("running", "waiting"), awaiting},
		"its successor finds no room":                      {awaiting, gangspec.LockstepController, noRoom, short},
		"what is bound is no answer to a batch that waits": {short, scheduler, onlyWaiting(pods("running", "running", "refused", "refused")), short},
		"until it is bound":                                {short, scheduler, onlyWaiting(pods("running", "running", "bound", "bound")), bound},
	} {
		t.Run(name, func(t *testing.T) {
			pg := group(2, "")
			if tc.was != nil {
				pg.Status.Conditions = []metav1.Condition{*tc.was}
			}
			if tc.by != "" {
				pg.ManagedFields = managed(tc.by)
			}
			pg.Status.Conditions = append(pg.Status.Conditions, metav1.Condition{Type: "Other", Status: "True", Reason: "Foreign"})
			if got := Of(key, pg, nil, tc.pods); got.Reason != tc.want.Reason || got.Message != tc.want.Message {
				t.Errorf("standing %s: %q, want %s: %q", got.Reason, got.Message, tc.want.Reason, tc.want.Message)
			}
			got := statusAfter(pg, tc.pods).Conditions
			if len(got) != 2 {
				t.Fatalf("conditions %v, want Scheduled and the one of somebody else", got)
			}
			for i := range got {
				if got[i].Type == v1alpha1.ConditionScheduled {
					if diff := cmp.Diff(*tc.want, got[i], cmpopts.IgnoreFields(metav1.Condition{}, "LastTransitionTime", "ObservedGeneration")); diff != "" {
						t.Errorf("condition (-want +got):\n%s", diff)
					}
				}
			}
		})
	}
}

func TestConditionWithoutMinimum(t *testing.T) {
	got := statusAfter(group(0, ""), nil).Conditions
	if len(got) != 1 || got[0].Reason != v1alpha1.ReasonGangUndefined {
		t.Errorf("conditions %v, want one with reason %s", got, v1alpha1.ReasonGangUndefined)
	}
}

// For a PodGroup that lockstep-controller made, users are not asked to set what is not theirs.
func TestConditionOfSuspendedOwner(t *testing.T) {
	pg := group(0, "")
	pg.Labels = map[string]string{gangspec.ManagedByLabel: gangspec.LockstepController}
	pg.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "u", Controller: new(true)}}
	if got := statusAfter(pg, nil).Conditions; len(got) != 1 || !strings.Contains(got[0].Message, "lockstep-controller writes it") {
		t.Errorf("conditions %v, want one that names lockstep-controller", got)
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
			if got := statusAfter(pg, tc.pods).Conditions[0].Message; got != tc.want {
				t.Errorf("message %q, want %q", got, tc.want)
			}
		})
	}
	elastic := group(2, "")
	elastic.Annotations = pg.Annotations
	if got := statusAfter(elastic, pods("bound", "bound")).Conditions[0].Status; got != metav1.ConditionTrue {
		t.Errorf("an elastic gang without its roles: %s, want True", got)
	}
}

func TestConditionWithStages(t *testing.T) {
	for name, tc := range map[string]struct {
		pods  []*v1.Pod
		phase schedulingv1alpha1.PodGroupPhase
		want  string
	}{
		"a worker is missing":           {pods("waiting"), schedulingv1alpha1.PodGroupPending, `gang "team/train" has 1 of 2 members for stage 1 of 2`},
		"the workers wait":              {pods("waiting", "waiting"), PreScheduling, `gang "team/train" has its minimum of 2 members and waits for nodes`},
		"the workers are bound":         {pods("bound", "bound"), Scheduled, `gang "team/train" has its minimum of 2 members for stage 1 of 2 bound; its workload makes 1 more later`},
		"the workers run":               {pods("running", "running"), schedulingv1alpha1.PodGroupRunning, `gang "team/train" has its minimum of 2 members for stage 1 of 2 bound; its workload makes 1 more later`},
		"the first stage has succeeded": {pods("succeeded", "succeeded"), schedulingv1alpha1.PodGroupRunning, `gang "team/train" has its minimum of 2 members for stage 1 of 2 bound; its workload makes 1 more later`},
		"the launcher waits":            {pods("running", "running", "waiting"), schedulingv1alpha1.PodGroupScheduling, `gang "team/train" has its minimum of 3 members and waits for nodes`},
		"all run":                       {pods("running", "succeeded", "running"), schedulingv1alpha1.PodGroupRunning, `gang "team/train" has its minimum of 3 members for stage 2 of 2 bound`},
		"all have succeeded":            {pods("succeeded", "succeeded", "succeeded"), schedulingv1alpha1.PodGroupFinished, `gang "team/train" has its minimum of 3 members for stage 2 of 2 bound`},
	} {
		t.Run(name, func(t *testing.T) {
			pg := group(3, "")
			pg.Annotations = map[string]string{v1alpha1.StagesAnnotation: "2,1"}
			got := statusAfter(pg, tc.pods)
			if got.Phase != tc.phase || got.Conditions[0].Message != tc.want {
				t.Errorf("phase %s, message %q, want %s, %q", got.Phase, got.Conditions[0].Message, tc.phase, tc.want)
			}
		})
	}
}

// A message depends on numbers only where it has them.
func TestMessageStaysWhileFactsDo(t *testing.T) {
	seen := map[string]bool{}
	for extra := range 5 {
		words := []string{"running", "running"}
		for range extra {
			words = append(words, "waiting")
		}
		seen[statusAfter(group(2, ""), pods(words...)).Conditions[0].Message] = true
	}
	if len(seen) != 1 {
		t.Errorf("messages: %v, want one", fmt.Sprint(seen))
	}
}
