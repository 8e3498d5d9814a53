package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// groupedPod returns a member by spec.schedulingGroup.
func groupedPod(name string, priority int32) *v1.Pod {
	pod := podOf(name)
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("train")}
	pod.Spec.Priority = &priority
	return pod
}

// TestOtherPriority: for a PodGroup whose priority is not that of its pods this is reported, once, and what else is not
// understood; but not while no pod of it is here.
func TestOtherPriority(t *testing.T) {
	s, key := newOpen(gangspec.Defaults{WaitTime: time.Minute}, Backoff{}), gangspec.Key{Namespace: "a", Name: "train"}
	var told []string
	note := func(e Effects) {
		for _, r := range e.Problems {
			told = append(told, r.Problem.String())
			if r.Pod != nil || r.Object != (gangspec.Ref{Kind: gangspec.Native, UID: "u"}) {
				t.Errorf("told of %v and %v, want the native PodGroup", r.Pod, r.Object)
			}
		}
	}
	object := &gangspec.PodGroupDescription{UID: "u", Min: 2, Priority: new(int32(5)), Problems: []gangspec.KeyProblem{{Key: "spec.new", Value: "x", Want: "understood", Used: "nothing", OnObject: true}}}
	note(s.Describe(gangspec.Native, key, object, start))
	if len(told) > 0 {
		t.Errorf("told of a PodGroup without pods here: %v", told)
	}
	note(s.ObservePod(groupedPod("p1", 5), start))
	note(s.ObservePod(groupedPod("p2", 7), start))
	note(s.ObservePod(groupedPod("p3", 7), start))
	note(s.Describe(gangspec.Native, key, object, start))
	if diff := cmp.Diff([]string{`spec.new: "x" is not understood; using nothing`, `spec.priority: "5" is not that of its pods (p2 has 7); using the priority of each pod`}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

// TestDissolve: the pods of a PodGroup that turns out to be no gang are let through, and forgotten; those that are in a
// gang of its name by annotation stay.
func TestDissolve(t *testing.T) {
	s, key := newOpen(gangspec.Defaults{WaitTime: time.Minute}, Backoff{}), gangspec.Key{Namespace: "a", Name: "train"}
	s.ObservePod(groupedPod("p1", 0), start)
	done := groupedPod("p2", 0)
	done.Spec.NodeName, done.Status.Phase = "n", v1.PodSucceeded
	s.ObservePod(done, start)
	if _, refusal := s.Queue(groupedPod("p1", 0)); refusal == "" {
		t.Fatal("a pod is let through before its PodGroup is known")
	}
	e := s.Dissolve(key, start)
	if diff := cmp.Diff([]string{"p1"}, names(e.Activate)); diff != "" {
		t.Errorf("activated (-want +got):\n%s", diff)
	}
	if len(s.gangs)+len(s.members)+len(s.succeeded) > 0 {
		t.Errorf("%d gangs, %d members and %d that succeeded are left", len(s.gangs), len(s.members), len(s.succeeded))
	}
	s.ObservePod(podOf("p3", of("train"), needs(2)), start)
	s.ObservePod(groupedPod("p1", 0), start)
	s.Dissolve(key, start)
	if got, ok := s.Explain(key); !ok || got.Message != `gang "a/train" has 1 of 2 members` {
		t.Errorf("of a gang by annotation it says %q", got.Message)
	}
}
