package explain

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/view"
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
			"0 of its minimum of 3 are there; see whether its pods are made in namespace team, with the label scheduling.x-k8s.io/pod-group: train and spec.schedulerName: lockstep-scheduler"},
		"one is there, and the profiles are not known": {gang(view.SourceNative, "Pending"), 1, nil,
			"1 of its minimum of 3 are there; see whether the others are made in namespace team, with spec.schedulingGroup.podGroupName: train"},
		"by annotation": {gang(view.SourceAnnotation, "Pending"), 1, []string{"a", "b"},
			"1 of its minimum of 3 are there; see whether the others are made in namespace team, with the annotation gang.scheduling.koordinator.sh/name: train and spec.schedulerName: a or b"},
		"by owner": {gang(view.SourceOwner, "Pending"), 0, profiles, "0 of its minimum of 3 are there; see whether what owns it makes its pods"},
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
	const want = "pods of it name a scheduler that is no profile of the configuration: default-scheduler (1), other (2); set spec.schedulerName to lockstep-scheduler"
	if got := strangers(pods, []string{"lockstep-scheduler"}); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got := strangers(pods[:1], []string{"lockstep-scheduler"}); got != "" {
		t.Errorf("it says %q of none", got)
	}
}

// TestWords: the first lines say how the gang stands.
func TestWords(t *testing.T) {
	pods := []Member{{Pod: "b-0"}}
	for sentence, c := range map[string]struct {
		report Report
		want   string
	}{
		"it waits":                     {Report{Phase: "Pending", Stands: "waiting for room", Members: 4, Min: 4, Pods: pods}, "Pending, waiting for room; 0 of 4 members have a node; it starts with 4\n"},
		"it is not listed":             {Report{Members: 4, Min: 4, Pods: pods}, "0 of 4 members have a node; it starts with 4\n"},
		"it has no pods":               {Report{Phase: "Pending", Stands: "gathering", Min: 3, Missing: "0 of 3"}, "Pending, gathering; it has no pods; it starts with 3\nMembers: 0 of 3\n"},
		"it is over":                   {Report{Phase: "Finished", Stands: "ended", Min: 3, Pods: pods}, "Finished, ended; its pods have ended; it starts with 3\n"},
		"room is kept":                 {Report{Phase: "Pending", Stands: "held", Members: 4, Min: 4, Held: 2, Pods: pods}, "Pending, held; 0 of 4 members have a node, and room is kept for 2; it starts with 4\n"},
		"its PodGroup may not be read": {Report{Members: 1, Unasked: "no", Pods: pods}, "0 of 1 members have a node; its minimum is not known\nWhat the scheduler would decide now is not known: no\n"},
		"nobody could be asked": {
			Report{Members: 1, Min: 1, Unasked: "list /api/v1/nodes: 403 Forbidden", Notes: []string{"more"}, Pods: pods},
			"0 of 1 members have a node; it starts with 1\nWhat the scheduler would decide now is not known: list /api/v1/nodes: 403 Forbidden\nNote: more\n",
		},
	} {
		c.report.Gang = "a/b"
		if got, want := strings.TrimSpace(c.report.words()), strings.TrimSpace("Gang a/b: "+c.want); got != want {
			t.Errorf("%s: it says\n%s\nwant\n%s", sentence, got, want)
		}
	}
}
