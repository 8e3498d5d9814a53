package explain

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

func TestStands(t *testing.T) {
	for sentence, c := range map[string]struct {
		gang view.Gang
		want string
	}{
		"members are missing":              {view.Gang{Phase: "Pending", Reason: "GangIncomplete"}, "gathering"},
		"members of another are missing":   {view.Gang{Phase: "PreScheduling", Reason: "GangIncomplete"}, "gathering"},
		"it has no minimum":                {view.Gang{Phase: "Pending", Reason: "GangUndefined"}, "undefined"},
		"its queue has no place for it":    {view.Gang{Phase: "Pending", Reason: "QueueCapability"}, "queued"},
		"others come first":                {view.Gang{Phase: "Pending", Reason: "QueueTurn"}, "queued"},
		"nothing is said of it":            {view.Gang{Phase: "PreScheduling", Reason: "AwaitingPlacement"}, "planning"},
		"it is tried again":                {view.Gang{Phase: "Pending", Reason: "PlacementFailed"}, "planning"},
		"it does not fit":                  {view.Gang{Phase: "Pending", Reason: "Unschedulable"}, "waiting for room"},
		"room is kept for some":            {view.Gang{Phase: "Scheduling", Reason: "Unschedulable", Held: 2}, "held"},
		"its victims are ending":           {view.Gang{Phase: "Pending", Reason: "PreemptionInProgress", Held: 3}, "preempting"},
		"its pods were evicted":            {view.Gang{Phase: "Pending", Reason: "Evicted"}, "evicted"},
		"it has waited too long":           {view.Gang{Phase: "Pending", Reason: "TimedOut"}, "timed out"},
		"it lost members, and waits anew":  {view.Gang{Phase: "Unknown", Reason: "Unschedulable"}, "waiting for room"},
		"its minimum has nodes":            {view.Gang{Phase: "Scheduled", Reason: "MinimumBound"}, "bound"},
		"it runs, and others of it do not": {view.Gang{Phase: "Running", Reason: "Unschedulable", Held: 1}, "bound"},
		"all of it has succeeded":          {view.Gang{Phase: "Finished"}, "ended"},
	} {
		if got := stands(&c.gang); got != c.want {
			t.Errorf("%s: it is %s, want %s", sentence, got, c.want)
		}
	}
}

func TestMissing(t *testing.T) {
	gang := func(source view.Source, phase string) *view.Gang {
		return &view.Gang{Namespace: "team", Name: "train", Source: source, Phase: phase, Minimum: 3}
	}
	profiles := []string{"lockstep-scheduler"}
	for sentence, c := range map[string]struct {
		gang     *view.Gang
		there    int
		profiles []string
		want     string
	}{
		"all are there": {gang(view.SourcePodGroup, "Pending"), 3, profiles, ""},
		"it has begun":  {gang(view.SourcePodGroup, "Running"), 2, profiles, ""},
		"none is there": {gang(view.SourcePodGroup, "Pending"), 0, profiles,
			"See whether its pods are made in namespace team, with the label scheduling.x-k8s.io/pod-group: train and spec.schedulerName: lockstep-scheduler"},
		"one is there, and the profiles are not known": {gang(view.SourceNative, "Pending"), 1, nil,
			"See whether the others are made in namespace team, with spec.schedulingGroup.podGroupName: train"},
		"by annotation": {gang(view.SourceAnnotation, "Pending"), 1, []string{"a", "b"},
			"See whether the others are made in namespace team, with the annotation gang.scheduling.koordinator.sh/name: train and spec.schedulerName: a or b"},
		"by owner": {gang(view.SourceOwner, "Pending"), 0, profiles, "See the events of what owns it, and whether that makes 3 pods"},
	} {
		if got := missing(c.gang, c.there, c.profiles); got != c.want {
			t.Errorf("%s: it says %q, want %q", sentence, got, c.want)
		}
	}
}

func TestStrangers(t *testing.T) {
	var pods []*v1.Pod
	for _, name := range []string{"lockstep-scheduler", "other", "default-scheduler", "other"} {
		pods = append(pods, &v1.Pod{Spec: v1.PodSpec{SchedulerName: name}})
	}
	const want = "Its pods name a scheduler that is no profile of the configuration: default-scheduler (1), other (2); set spec.schedulerName to lockstep-scheduler"
	if got := strangers(pods, []string{"lockstep-scheduler"}); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got := strangers(pods[:1], []string{"lockstep-scheduler"}); got != "" {
		t.Errorf("it says %q of none", got)
	}
}

// TestRefused: while a gang lacks the member that a kubelet refused, the report says so, and no longer.
func TestRefused(t *testing.T) {
	on := func(name string, phase v1.PodPhase) *v1.Pod {
		pod := &v1.Pod{Spec: v1.PodSpec{NodeName: "n1"}, Status: v1.PodStatus{Phase: phase}}
		pod.Name = name
		return pod
	}
	refused := on("b", v1.PodFailed)
	refused.Status.Reason, refused.Status.Message = "OutOfcpu", "Pod was rejected: no cpu"
	gang := &view.Gang{Source: view.SourceOwner, Phase: "Unknown", Reason: "GangIncomplete", Minimum: 2}
	r := newReport("team/train", []*v1.Pod{on("a", v1.PodRunning), refused}, gang)
	r.tell(gang, nil)
	const want = "1 refused: pod b: Refused by the kubelet of n1: OutOfcpu (no cpu)"
	if len(r.Advice) != 2 || r.Advice[0] != want || r.Pods[1].Reason != "OutOfcpu" {
		t.Errorf("advice %q, pods %v; want %q first, and the reason of b", r.Advice, r.Pods, want)
	}
	gang.Phase = "Running"
	r = newReport("team/train", []*v1.Pod{on("a", v1.PodRunning), refused, on("c", v1.PodRunning)}, gang)
	if r.tell(gang, nil); len(r.Advice) > 0 {
		t.Errorf("advice %q, want none: another runs in its place", r.Advice)
	}
}
