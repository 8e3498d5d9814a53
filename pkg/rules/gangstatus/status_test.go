package gangstatus

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// TestStatus: gangs without a community PodGroup have the same standing as a gang with one. Those with one are in
// TestPhase and TestCondition.
func TestStatus(t *testing.T) {
	const (
		short  = `gang "team/train": 1 of 2 members fit`
		others = `gang "team/train" waits for its group: gang "team/eval" has 0 of 4 members`
	)
	annotated := func(list []*v1.Pod) []*v1.Pod {
		return with(list, func(_ int, p *v1.Pod) { p.Annotations[v1alpha1.MinAvailableAnnotation] = "2" })
	}
	native := func(was metav1.ConditionStatus) *schedulingv1beta1.PodGroup {
		pg := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{v1alpha1.QueueLabel: "research"}}}
		pg.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
		if was != "" {
			pg.Status.Conditions = []metav1.Condition{{Type: schedulingv1beta1.PodGroupInitiallyScheduled, Status: was, Reason: "Theirs", Message: "theirs"}}
		}
		return pg
	}
	for sentence, c := range map[string]struct {
		native *schedulingv1beta1.PodGroup
		pods   []*v1.Pod
		queue  string
		want   Status
	}{
		"by annotation, it waits as a member says": {
			pods: annotated(saying("Unschedulable", "0/2 nodes are available: "+short, short)),
			want: Status{Phase: schedulingv1alpha1.PodGroupPending, Minimum: 2, Members: 2, Reason: "Unschedulable", Message: short},
		},
		"by annotation, part of it is lost, which only a PodGroup remembers": {
			pods: annotated(pods("running", "waiting")),
			want: Status{Phase: schedulingv1alpha1.PodGroupScheduling, Minimum: 2, Members: 2, Bound: 1, Running: 1, Reason: v1alpha1.ReasonAwaitingPlacement, Message: `gang "team/train" has its minimum of 2 members and waits for nodes`},
		},
		"by annotation, it waits for one that it is to start with": {
			pods: annotated(saying(v1alpha1.ReasonGangIncomplete, others, others)),
			want: Status{Phase: PreScheduling, Minimum: 2, Members: 2, Reason: v1alpha1.ReasonGangIncomplete, Message: others},
		},
		"nobody says its minimum": {
			pods: pods("waiting"),
			want: Status{Phase: schedulingv1alpha1.PodGroupPending, Members: 1, Reason: v1alpha1.ReasonGangUndefined, Message: gangstate.TextUndefined(key, "")},
		},
		"native, it runs": {
			native: native(metav1.ConditionTrue), pods: pods("running", "succeeded", "failed"),
			queue: "research", want: Status{Phase: schedulingv1alpha1.PodGroupRunning, Minimum: 2, Members: 2, Bound: 2, Running: 1, Succeeded: 1, Failed: 1, Reason: v1alpha1.ReasonMinimumBound, Message: `gang "team/train" has its minimum of 2 members bound`},
		},
		"native, it ran, and lost a member": {
			native: native(metav1.ConditionTrue), pods: pods("running", "waiting"),
			queue: "research", want: Status{Phase: schedulingv1alpha1.PodGroupUnknown, Minimum: 2, Members: 2, Bound: 1, Running: 1, Reason: v1alpha1.ReasonAwaitingPlacement, Message: `gang "team/train" has its minimum of 2 members and waits for nodes`},
		},
		"native, it waits": {
			native: native(""), pods: saying("Unschedulable", short, short),
			queue: "research", want: Status{Phase: schedulingv1alpha1.PodGroupPending, Minimum: 2, Members: 2, Reason: "Unschedulable", Message: short},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := Of(key, nil, c.native, slices.Concat(c.pods, c.pods))
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Status{}, "Spec", "Lead", "Nodes", "PodGroups")); diff != "" {
				t.Errorf("standing (-want +got):\n%s", diff)
			}
			if queue := got.PodGroups.Facts().Queue; queue != c.queue {
				t.Errorf("queue %q, want %q", queue, c.queue)
			}
			if got.Spec.Min != c.want.Minimum {
				t.Errorf("its spec has the minimum %d, want %d", got.Spec.Min, c.want.Minimum)
			}
		})
	}
}

// TestStatusOfASetWithAnotherMinimum: the template of a StatefulSet got another minimum, and its first pod was made
// again. The scheduler goes by the first in rank, and so does the status.
func TestStatusOfASetWithAnotherMinimum(t *testing.T) {
	set := with(pods("running", "waiting", "running"), func(i int, p *v1.Pod) {
		p.Labels["apps.kubernetes.io/pod-index"] = []string{"1", "0", "2"}[i]
		p.Annotations[v1alpha1.MinAvailableAnnotation] = []string{"2", "3", "2"}[i]
	})
	if got := Of(key, group(2, ""), nil, set); got.Minimum != 3 {
		t.Errorf("minimum %d, want that of the first in rank, 3", got.Minimum)
	}
}

// TestStatusNamesTheQueueOfItsNativePodGroup: a gang that has both kinds of PodGroup is in the queue of the native
// one if that alone names one, as in the scheduler.
func TestStatusNamesTheQueueOfItsNativePodGroup(t *testing.T) {
	native := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{v1alpha1.QueueLabel: "research"}}}
	native.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 4}
	got := Of(key, group(2, ""), native, nil)
	if queue := got.PodGroups.Facts().Queue; queue != "research" || got.Minimum != 2 {
		t.Errorf("queue %q, minimum %d; want research, 2", queue, got.Minimum)
	}
}
