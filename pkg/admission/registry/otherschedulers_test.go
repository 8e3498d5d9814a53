package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// see stores a pod in the informer and reports it to the registry.
func (s *stage) see(before, now *v1.Pod) {
	if err := s.podsByGang.Update(now); err != nil {
		panic(err)
	}
	s.podSeen(s.ctx, before, now)
}

// end deletes a pod from the informer and reports that to the registry.
func (s *stage) end(pod *v1.Pod) {
	if err := s.podsByGang.Delete(pod); err != nil {
		panic(err)
	}
	s.podGone(s.ctx, pod)
}

// TestPodsOfOtherSchedulers: a gang that is split over schedulers gets that in its explanation, and again when it
// changes.
func TestPodsOfOtherSchedulers(t *testing.T) {
	named := func(i int, scheduler string) *v1.Pod {
		pod := makeMembers("train", 5)[i]
		pod.Spec.SchedulerName = scheduler
		return pod
	}
	elsewhere := func(i int) *v1.Pod { return named(i, v1.DefaultSchedulerName) }
	s := newStage(t, testProfile)
	for i := range 3 {
		s.see(nil, named(i, testProfile))
	}
	said := func(want string) {
		t.Helper()
		if e, _ := s.of(testProfile).Explanation(train); e.Message != want || e.Reason != v1alpha1.ReasonGangIncomplete {
			t.Errorf("reason %s, message (-want +got):\n%s", e.Reason, cmp.Diff(want, e.Message))
		}
	}
	told := func(want bool) {
		t.Helper()
		if due := s.acted[testProfile].Changed.Has(train); due != want {
			t.Errorf("it is to be told again: %t, want %t", due, want)
		}
		clear(s.acted)
	}
	said(`gang "default/train" has 3 of 5 members`)
	told(true)
	s.see(nil, elsewhere(3))
	said(`gang "default/train" has 3 of 5 members; 1 more names another scheduler: default-scheduler (set spec.schedulerName: lockstep-scheduler)`)
	told(true)
	s.see(nil, named(4, "another"))
	said(`gang "default/train" has 3 of 5 members; 2 more name another scheduler: another, default-scheduler (set spec.schedulerName: lockstep-scheduler)`)
	told(true)
	s.see(elsewhere(3), elsewhere(3)) // its status has changed
	told(false)
	s.end(named(4, "another"))
	told(true)
	moved := elsewhere(3)
	moved.Annotations[v1alpha1.GangNameAnnotation] = "other"
	s.see(elsewhere(3), moved)
	said(`gang "default/train" has 3 of 5 members`)
	told(true)
	s.end(moved)
	for i := range 3 {
		s.end(named(i, testProfile))
	}
}

// TestGangOfTwoProfiles: members that name two profiles are two gangs, and the explanation of each
// names the other.
func TestGangOfTwoProfiles(t *testing.T) {
	s := newStage(t, testProfile, "another")
	for i, pod := range makeMembers("train", 5) {
		if i >= 3 {
			pod.Spec.SchedulerName = "another"
		}
		s.see(nil, pod)
	}
	for profile, want := range map[string]string{
		testProfile: `gang "default/train" has 3 of 5 members; 2 more name another scheduler: another (set spec.schedulerName: lockstep-scheduler)`,
		"another":   `gang "default/train" has 2 of 5 members; 3 more name another scheduler: lockstep-scheduler (set spec.schedulerName: another)`,
	} {
		if e, _ := s.of(profile).Explanation(train); e.Message != want {
			t.Errorf("profile %s (-want +got):\n%s", profile, cmp.Diff(want, e.Message))
		}
	}
}
