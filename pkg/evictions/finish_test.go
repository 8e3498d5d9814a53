package evictions

import (
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestFinish: an interrupted eviction is finished where a gang is left in part, and
// nowhere else.
func TestFinish(t *testing.T) {
	as := func(message string, pods []*v1.Pod) []*v1.Pod {
		for _, pod := range pods {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.PodEvicting, Status: v1.ConditionTrue, Reason: profile, Message: message}}
		}
		return pods
	}
	marked := func(pods []*v1.Pod) []*v1.Pod { return as(`{"of":3}`, pods) }
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		min  int
		keep bool // broken gangs are left alone
		job  *batchv1.Job
		left string
	}{
		"a gang of which all are marked and none is gone runs on":      {pods: marked(members("g", 3, 3, "n0")), min: 3, left: "g-0 g-1 g-2"},
		"one that has lost members goes whole":                         {pods: marked(members("g", 2, 3, "n0")), min: 3},
		"also those of it that were not marked yet":                    {pods: slices.Concat(marked(members("g", 1, 3, "n0")), members("g", 2, 3, "n0")[1:]), min: 3},
		"but for what was begun nobody goes where they are left alone": {pods: slices.Concat(marked(members("g", 1, 3, "n0")), members("g", 2, 3, "n0")[1:]), min: 3, keep: true, left: "g-1"},
		"a pod in no gang stays: it is chosen again if it has to go":   {pods: marked(members("single", 1, 0, "n0")), min: 1, left: "single-0"},
		"a gang that had lost a member before runs on":                 {pods: as(`{"of":2}`, members("g", 2, 3, "n0")), min: 3, left: "g-0 g-1"},
		"so does one of which a pod was to go by itself":               {pods: as("{}", members("g", 2, 3, "n0")), min: 3, left: "g-0 g-1"},
		"and one whose mark nobody can read":                           {pods: as("whatever", members("g", 2, 3, "n0")), min: 3, left: "g-0 g-1"},
		"what is left of a Job that was suspended is left to the Job controller": {pods: marked(ofTheJob(members("g", 2, 3, "n0"))), min: 3, left: "g-0 g-1", job: job(func(j *batchv1.Job) {
			j.Spec.Suspend, j.Annotations = new(true), map[string]string{v1alpha1.EvictedAnnotation: "{}"}
		})},
		"of one that runs again it goes": {pods: marked(ofTheJob(members("g", 2, 3, "n0"))), min: 3, job: job(nil)},
		"nobody goes who is not marked":  {pods: members("g", 2, 3, "n0"), min: 3, left: "g-0 g-1"},
	} {
		t.Run(sentence, func(t *testing.T) {
			key := gangspec.Key{Namespace: "default", Name: "g"}
			s := newStage(t, known{key: {runs("g", c.min, c.pods...)}}, c.pods...)
			if s.Jobs.EvictBy = v1alpha1.EvictBySuspend; c.job != nil {
				must.Succeed(t, s.client.Tracker().Add(c.job))
			}
			for _, pod := range c.pods {
				s.PodUpdated(pod) // in case the informer has not delivered it yet
			}
			s.Finish(s.ctx, time.Now().Add(time.Hour), !c.keep)
			if got := s.left(t); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
		})
	}
}

// TestFinishTogether: of gangs that start together none is left where another one has gone since; a gang that did not
// run before is no reason.
func TestFinishTogether(t *testing.T) {
	for sentence, c := range map[string]struct {
		of   int
		left string
	}{
		"the other one ran":     {4, ""},
		"the other one did not": {2, "b-0 b-1"},
	} {
		t.Run(sentence, func(t *testing.T) {
			b := members("b", 2, 2, "n0")
			together := []gangstate.RunningGang{runs("a", 2), runs("b", 2, b...)}
			s := newStage(t, known{together[0].Key: together, together[1].Key: together}, b...)
			if _, err := s.Mark(s.ctx, b[0], c.of); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "marked pods to be known", func() bool { return s.marked() > 0 })
			s.Finish(s.ctx, time.Now().Add(time.Hour), true)
			if left := s.left(t); left != c.left {
				t.Errorf("left %q, want %q", left, c.left)
			}
		})
	}
}

// TestUnfinishedMarks: a mark without an eviction is taken back.
func TestUnfinishedMarks(t *testing.T) {
	pods := members("g", 2, 2, "n0")
	s := newStage(t, known{}, pods...)
	for _, pod := range pods {
		if _, err := s.Mark(s.ctx, pod, 0); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "marked pods to be known", func() bool { return s.marked() == len(pods) })
	s.Finish(s.ctx, time.Now().Add(time.Hour), true)
	for _, pod := range pods {
		if now := s.now(t, pod.Name); s.Marked(now) {
			t.Errorf("pod %s: %v", pod.Name, now.Status.Conditions)
		}
	}
}

// TestMarks: a mark names its profile, and only where it holds.
func TestMarks(t *testing.T) {
	mark := func(is v1.ConditionStatus, reason, message string) v1.PodCondition {
		return v1.PodCondition{Type: v1alpha1.PodEvicting, Status: is, Reason: reason, Message: message}
	}
	for sentence, c := range map[string]struct {
		conditions []v1.PodCondition
		want       string
	}{
		"no mark":                        {nil, ""},
		"that of a profile":              {[]v1.PodCondition{mark(v1.ConditionTrue, profile, "whatever")}, profile},
		"one that was taken back":        {[]v1.PodCondition{mark(v1.ConditionFalse, "PreemptionWithdrawn", profile)}, ""},
		"what everybody knows is no one": {[]v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler, Message: profile}}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := objectstate.EvictedBy(&v1.Pod{Status: v1.PodStatus{Conditions: c.conditions}}); got != c.want {
				t.Errorf("marked by %q, want %q", got, c.want)
			}
		})
	}
	pod := members("v", 1, 0, "n0")[0]
	s := newStage(t, known{}, pod)
	if _, err := s.Mark(s.ctx, pod, 0); err != nil {
		t.Fatal(err)
	}
	now := s.now(t, "v-0")
	other := Evictor{Profile: "another"}
	if !s.Marked(now) || other.Marked(now) {
		t.Errorf("marked by %q", objectstate.EvictedBy(now))
	}
	if s.Unmark(s.ctx, pod); objectstate.EvictedBy(s.now(t, "v-0")) != "" {
		t.Errorf("it is marked still: %v", s.now(t, "v-0").Status.Conditions)
	}
}
