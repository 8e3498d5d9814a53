package registry

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	cachetest "k8s.io/client-go/tools/cache/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// feed runs an informer with these handlers over a source of pods.
func feed(t *testing.T, handlers cache.ResourceEventHandlerFuncs) *cachetest.FakeControllerSource {
	t.Helper()
	source := cachetest.NewFakeControllerSource()
	informer := cache.NewSharedInformer(source, &v1.Pod{}, 0)
	registration, err := informer.AddEventHandler(handlers)
	must.Succeed(t, err)
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), registration.HasSynced) {
		t.Fatal("the informer does not sync")
	}
	return source
}

// eventually waits until get returns want.
func eventually[T any](t *testing.T, what string, want T, get func() T) {
	t.Helper()
	await.NoError(t, what+": as wanted", func() error {
		if diff := cmp.Diff(want, get()); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

func again(pod *v1.Pod, uid string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.UID = types.UID(uid)
	return pod
}

// TestSucceededMemberMadeAgain: a member that ran to success, and was deleted and recreated while the watch was
// interrupted, comes as an update with another UID. The old one is gone.
func TestSucceededMemberMadeAgain(t *testing.T) {
	s := newStage(t, testProfile)
	source := feed(t, s.succeeded(s.ctx))
	members := makeMembers("train", 3)
	s.podSeen(s.ctx, nil, sample.Bound(members[0], "node-0000"))
	least := func() int { return s.Running(testProfile, train)[0].Min }
	done := sample.Bound(members[1], "node-0000")
	done.Status.Phase = v1.PodSucceeded
	source.Add(done)
	eventually(t, "minimum beside one that succeeded", 2, least)
	source.Modify(again(done, "again"))
	source.Delete(again(done, "again"))
	eventually(t, "minimum once that is gone", 3, least)
}

// TestDeletedMemberSucceeds: what is kept of a member shows that it ended because it is being deleted.
func TestDeletedMemberSucceeds(t *testing.T) {
	pod := makeMembers("train", 1)[0]
	pod.Status.Phase = v1.PodSucceeded
	for deleted, want := range map[*metav1.Time]bool{nil: true, new(metav1.Now()): false} {
		pod.CreationTimestamp, pod.DeletionTimestamp = metav1.Now(), deleted
		kept, err := keepMembership(pod)
		must.Succeed(t, err)
		if got := kept.(*v1.Pod); gangspec.RanToSuccess(got) != want || !got.CreationTimestamp.Equal(&pod.CreationTimestamp) {
			t.Errorf("deleted at %v: it ran to success: %t, want %t; created %v", deleted, !want, want, got.CreationTimestamp)
		}
	}
}

// TestEndOfSucceeded: what is kept of a member that succeeded shows when it ended.
func TestEndOfSucceeded(t *testing.T) {
	end := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := makeMembers("train", 1)[0]
	for _, at := range []time.Time{end.Add(-time.Hour), end} {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
			v1.ContainerStatus{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at)}}})
	}
	kept, err := keepMembership(pod)
	must.Succeed(t, err)
	if got := gangspec.EndOf(kept.(*v1.Pod)); !got.Equal(end) {
		t.Errorf("it ended at %s, want %s", got, end)
	}
}

// TestWatches: a process that begins to lead can wait for everything that gangs are made from, whatever the
// number of profiles.
func TestWatches(t *testing.T) {
	s, got := newStage(t, testProfile, "another"), map[string]string{}
	must.Succeed(t, s.Start(s.ctx))
	for _, watch := range s.watches.All() {
		got[watch.Name()] = "the scheduler's informer"
		if resource, selector, own := watch.Own(); own {
			got[watch.Name()] = resource.String() + selector
		}
	}
	want := map[string]string{
		"pods":                          "the scheduler's informer",
		"pods that succeeded":           "/v1, Resource=podsstatus.phase=Succeeded",
		"podgroups.scheduling.x-k8s.io": "scheduling.x-k8s.io/v1alpha1, Resource=podgroups",
		"podgroups.scheduling.k8s.io":   "scheduling.k8s.io/v1beta1, Resource=podgroups",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("watches (-want +got):\n%s", diff)
	}
}

// TestBadDelayOfASinglePod: a preemption delay of a pod in no gang that cannot be used is reported, once for each
// value.
func TestBadDelayOfASinglePod(t *testing.T) {
	s := newStage(t, testProfile)
	pod := func(delay, node string) *v1.Pod {
		p := sample.Pod("p").Node(node)
		return p.Annotation(v1alpha1.PreemptionDelayAnnotation, delay).Label("at", time.Now().String()).Obj()
	}
	s.podSeen(s.ctx, nil, pod("5m", ""))
	s.podSeen(s.ctx, nil, pod("soon", "n0"))
	if problems := s.acted[testProfile].Problems; len(problems) > 0 {
		t.Errorf("reported: %v, want nothing of a good value, or of a pod on its node", problems)
	}
	s.podSeen(s.ctx, nil, pod("soon", ""))
	s.podSeen(s.ctx, pod("soon", ""), pod("soon", ""))
	s.podSeen(s.ctx, pod("soon", ""), pod("-1s", ""))
	var told []string
	for _, report := range s.acted[testProfile].Problems {
		told = append(told, report.Problem.String())
	}
	const key = v1alpha1.PreemptionDelayAnnotation
	want := []string{
		key + `: "soon" is not a duration such as 90s or 10m; using 0s: the pod may evict others at once`,
		key + `: "-1s" is not a duration such as 90s or 10m; using 0s: the pod may evict others at once`,
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}
