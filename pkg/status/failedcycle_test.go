package status

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// profile is a profile with a client, and nothing else.
type profile struct {
	framework.Framework
	client clientset.Interface
	queue  fwk.APICacher
}

func (p *profile) ClientSet() clientset.Interface { return p.client }
func (p *profile) APICacher() fwk.APICacher       { return p.queue }

// queued is kube-scheduler's queue of calls.
type queued struct {
	fwk.APICacher
	conditions []*v1.PodCondition
}

func (q *queued) PatchPodStatus(_ *v1.Pod, conditions []*v1.PodCondition, _ *fwk.NominatingInfo) (<-chan error, error) {
	q.conditions = conditions
	return nil, nil
}

// TestCorrect: the condition that kube-scheduler writes for a pod that failed its cycle is corrected, or not written; a
// nomination is written in any case, and nothing where nothing changes.
func TestCorrect(t *testing.T) {
	const words = "0/1 nodes are available"
	unschedulable := &v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: words}
	to := func(node string) *fwk.NominatingInfo {
		return &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node}
	}
	for sentence, c := range map[string]struct {
		reason, message string // empty for nothing
		nominating      *fwk.NominatingInfo
		want, node      string // want is reason and message
		writes          int
	}{
		"another reason":                 {"Limit", words, nil, "Limit: " + words, "old", 1},
		"another reason, and why":        {"Limit", PrefixMessage("too many", words), nil, "Limit: too many. " + words, "old", 1},
		"nothing":                        {"", "", nil, "", "old", 0},
		"nothing, and a nomination":      {"", "", to("new"), "", "new", 1},
		"nothing, and the end of one":    {"", "", to(""), "", "", 1},
		"nothing, and the one it has":    {"", "", to("old"), "", "old", 0},
		"its own reason, and nomination": {v1.PodReasonUnschedulable, words, to("new"), "Unschedulable: " + words, "new", 1},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Status: v1.PodStatus{NominatedNodeName: "old"}}
		client := fake.NewClientset(pod)
		correct := func(_ *v1.Pod, condition *v1.PodCondition) *v1.PodCondition {
			if c.reason == "" {
				return nil
			}
			corrected := *condition
			corrected.Reason, corrected.Message = c.reason, c.message
			return &corrected
		}
		calls := OverrideFailedCondition(t.Context(), &profile{client: client}, correct).APICacher()
		if _, err := calls.PatchPodStatus(pod, []*v1.PodCondition{unschedulable}, c.nominating); err != nil {
			t.Errorf("%s: %v", sentence, err)
		}
		got, err := client.CoreV1().Pods("ns").Get(t.Context(), "p", metav1.GetOptions{})
		must.Succeed(t, err)
		said := ""
		if word := objectstate.WaitCondition(got); word != nil {
			said = word.Reason + ": " + word.Message
		}
		if writes := len(client.Actions()) - 1; said != c.want || got.Status.NominatedNodeName != c.node || writes != c.writes {
			t.Errorf("%s: says %q, nominated to %q, %d writes; want %q, %q, %d", sentence, said, got.Status.NominatedNodeName, writes, c.want, c.node, c.writes)
		}
		queue := &queued{}
		if _, err := OverrideFailedCondition(t.Context(), &profile{client: client, queue: queue}, correct).APICacher().PatchPodStatus(pod, []*v1.PodCondition{unschedulable}, c.nominating); err != nil {
			t.Errorf("%s: by the queue: %v", sentence, err)
		}
		if got := len(queue.conditions) > 0; got != (c.reason != "") {
			t.Errorf("%s: the queue of calls has conditions: %t, want %t", sentence, got, c.reason != "")
		}
	}
}

// TestLimitBeforeWords: a message counts as said also where kube-scheduler's own words come after it, but not where one
// only begins like it.
func TestLimitBeforeWords(t *testing.T) {
	for message, want := range map[string]bool{
		"too many": true, "too many. 0/1 nodes are available": true, "too many by far": false, "0/1 nodes are available": false,
	} {
		pod := &v1.Pod{Status: v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Limit", Message: message}}}}
		if got := says(pod, "Limit", "too many"); got != want {
			t.Errorf("%q says it: %t, want %t", message, got, want)
		}
		if says(pod, "Other", "too many") {
			t.Errorf("%q says it for another reason", message)
		}
	}
}

// TestCorrectFails: what could not be written is an error.
func TestCorrectFails(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", (&server{fail: []error{errors.New("away")}}).patch)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	calls := OverrideFailedCondition(t.Context(), &profile{client: client}, func(_ *v1.Pod, condition *v1.PodCondition) *v1.PodCondition { return condition }).APICacher()
	if _, err := calls.PatchPodStatus(pod, []*v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse}}, nil); err == nil {
		t.Error("no error")
	}
}
