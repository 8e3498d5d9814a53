package explain

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
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
	profiles := []string{"lockstep-scheduler"}
	const want = "Its pods name a scheduler that is no profile of the configuration: default-scheduler (1), other (2); set spec.schedulerName to lockstep-scheduler"
	if got := textStrangers(strangers(pods, profiles), profiles); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	if got := textStrangers(strangers(pods[:1], profiles), profiles); got != "" {
		t.Errorf("it says %q of none", got)
	}
}

// emptyDump returns the file of a dump of a cluster in which nothing is.
func emptyDump(t *testing.T) string {
	t.Helper()
	var dump bytes.Buffer
	must.Succeed(t, source.NewRecorder(&source.Dump{}, "").Write(&dump))
	file := filepath.Join(t.TempDir(), "dump")
	must.Succeed(t, os.WriteFile(file, dump.Bytes(), 0o600))
	return file
}

// TestUnscheduled: a gang whose pods all name a scheduler that is no profile waits for that to be corrected.
func TestUnscheduled(t *testing.T) {
	for want, schedulers := range map[string][]string{
		"ns/train waits: its 3 pods name the scheduler default-scheduler, which is no profile of lockstep-scheduler; write schedulerName: lockstep-scheduler": {
			"default-scheduler", "default-scheduler", "default-scheduler"},
		"ns/train waits: its 1 pod names the scheduler lockstep-sheduler, which is no profile of lockstep-scheduler; write schedulerName: lockstep-scheduler": {
			"lockstep-sheduler"},
		"ns/train waits: its 3 pods name the schedulers a (2), b (1), which are no profiles of lockstep-scheduler; write schedulerName: lockstep-scheduler": {
			"a", "b", "a"},
	} {
		o := &options{Access: access.New(genericiooptions.NewTestIOStreamsDiscard())}
		o.DumpFile, o.Timeout = emptyDump(t), time.Minute
		o.forecast = func(context.Context, *access.Access, *source.Question, string) (*Forecast, error) {
			f := &Forecast{Profiles: []string{"lockstep-scheduler"}}
			for i, name := range schedulers {
				f.Named = append(f.Named, &v1.Pod{Spec: v1.PodSpec{SchedulerName: name}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("train-%d", i), UID: apitypes.UID(strconv.Itoa(i)),
					Annotations: map[string]string{v1alpha1.GangNameAnnotation: "train", v1alpha1.MinAvailableAnnotation: strconv.Itoa(len(schedulers))}}})
			}
			return f, nil
		}
		r, err := o.report(t.Context(), "ns/train")
		must.Succeed(t, err)
		if r.Verdict != want || len(r.Advice) > 0 || r.State != "planning" || r.Waiting != len(schedulers) {
			t.Errorf("%d wait, it is %s: %q, advice %q; want %q", r.Waiting, r.State, r.Verdict, r.Advice, want)
		}
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
