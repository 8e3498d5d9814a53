package gang

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// A gang that is split over schedulers is told so, and told again when that changes.
func TestPodsOfOtherSchedulers(t *testing.T) {
	key := gang.Key{Namespace: "default", Name: "train"}
	named := func(i int, scheduler string, change func(*st.PodWrapper)) *v1.Pod {
		return makeMembers("train", 5, 1, func(_ int, pod *st.PodWrapper) {
			pod.SchedulerName(scheduler)
			if change != nil {
				change(pod)
			}
		})[i]
	}
	elsewhere := func(i int) *v1.Pod { return named(i, v1.DefaultSchedulerName, nil) }
	s := newStage(t, makeNodes(1, 1))
	for i := range 3 {
		s.podSeen(s.ctx, nil, named(i, testProfile, nil))
	}
	said := func(want string) {
		t.Helper()
		if e, _ := s.tell.explanation(key); e.Message != want || e.Reason != v1alpha1.ReasonGangIncomplete {
			t.Errorf("reason %s, message (-want +got):\n%s", e.Reason, cmp.Diff(want, e.Message))
		}
	}
	told := func(want bool) {
		t.Helper()
		s.tell.mu.Lock()
		defer s.tell.mu.Unlock()
		if _, due := s.tell.due[key]; due != want {
			t.Errorf("it is to be told again: %t, want %t", due, want)
		}
		delete(s.tell.due, key)
	}
	said(`gang "default/train" has 3 of 5 members`)
	told(true)
	s.podSeen(s.ctx, nil, elsewhere(3))
	said(`gang "default/train" has 3 of 5 members; 1 more names another scheduler: default-scheduler (set spec.schedulerName: lockstep-scheduler)`)
	told(true)
	s.podSeen(s.ctx, nil, named(4, "another", nil))
	said(`gang "default/train" has 3 of 5 members; 2 more name another scheduler: another, default-scheduler (set spec.schedulerName: lockstep-scheduler)`)
	told(true)
	s.podSeen(s.ctx, elsewhere(3), elsewhere(3)) // its status has changed
	told(false)
	s.podGone(s.ctx, named(4, "another", nil))
	told(true)
	s.podSeen(s.ctx, elsewhere(3), named(3, v1.DefaultSchedulerName, func(pod *st.PodWrapper) {
		pod.Annotation(v1alpha1.GangNameAnnotation, "other")
	}))
	said(`gang "default/train" has 3 of 5 members`)
	told(true)
	s.podGone(s.ctx, named(3, v1.DefaultSchedulerName, nil))
	if n, m := len(s.strangers.gangs), len(s.strangers.schedulers); n+m != 0 {
		t.Errorf("%d pods and %d gangs are left behind", n, m)
	}
}
