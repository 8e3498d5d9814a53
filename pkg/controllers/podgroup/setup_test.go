package podgroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/framework/cachetransform"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstatus"
	"github.com/lockstep-sh/lockstep/test/helpers/members"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func statusAfter(pg *coscheduling.PodGroup, pods []*v1.Pod) coscheduling.PodGroupStatus {
	f := gangstatus.FactsOf(members.Key, gangspec.ReadPodGroup(pg, &pg.Spec), pods, &gangstate.History{})
	return gangstatus.Next(pg, f, metav1.NewTime(members.Epoch))
}

// What is dropped from the cache is not needed.
func TestKeptPodsHaveTheFacts(t *testing.T) {
	words := []string{"waiting", "gated", "claimless", "refused", "expired", "bound", "running", "succeeded", "failed", "refused by kubelet"}
	full := func() []*v1.Pod {
		return members.With(members.Pods(words...), func(i int, p *v1.Pod) {
			p.Spec.Priority = ptr.To(int32(i))
			p.Spec.Containers = []v1.Container{{Name: "main", Image: "image"}}
			p.Labels[v1alpha1.RoleLabel] = []string{"launcher", "worker"}[i%2]
			p.Annotations[v1alpha1.MinAvailableAnnotation] = "4"
			p.Annotations[v1.LastAppliedConfigAnnotation] = "long"
			p.OwnerReferences = []metav1.OwnerReference{{Name: words[i], UID: p.UID, Controller: ptr.To(true)}}
			p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodReady})
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{
				Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(members.Epoch), Message: "long"}}}}
			if words[i] == "refused by kubelet" {
				p.Status.ContainerStatuses = nil
			}
			if i == 5 {
				p.DeletionTimestamp = ptr.To(metav1.NewTime(members.Epoch))
			}
		})
	}
	var stripped []*v1.Pod
	for _, p := range full() {
		s, err := cachetransform.Pod(p)
		must.Succeed(t, err)
		stripped = append(stripped, s.(*v1.Pod))
	}
	pg := members.PodGroup(2, "")
	if diff := cmp.Diff(statusAfter(pg, full()), statusAfter(pg, stripped)); diff != "" {
		t.Errorf("status from what is kept (-full +kept):\n%s", diff)
	}
	if got := stripped[0]; got.Spec.Containers[0].Image != "" || got.Annotations[v1.LastAppliedConfigAnnotation] != "" {
		t.Errorf("kept: %v", got)
	}
}

func TestIndex(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.Pod)
		want   []string
	}{
		"label":      {func(p *v1.Pod) { p.Labels = map[string]string{v1alpha1.PodGroupXLabel: "a"} }, []string{"a"}},
		"annotation": {func(p *v1.Pod) { p.Annotations = map[string]string{v1alpha1.GangNameAnnotation: "b"} }, []string{"b"}},
		"a native PodGroup": {func(p *v1.Pod) {
			p.Labels = nil
			p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: ptr.To("c")}
		}, []string{"c"}},
		"no gang": {func(p *v1.Pod) { p.Labels = nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := members.Pod(0, "waiting")
			tc.change(p)
			if diff := cmp.Diff(tc.want, named.Index(p)); diff != "" {
				t.Errorf("index (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDeepCopy(t *testing.T) {
	pg := members.PodGroup(2, "")
	pg.Status = statusAfter(pg, members.Pods("running", "running"))
	pg.Annotations, pg.Spec.ScheduleTimeoutSeconds = map[string]string{"a": "b"}, ptr.To[int32](3)
	list := &coscheduling.PodGroupList{Items: []coscheduling.PodGroup{*pg}}
	copied, ok := list.DeepCopyObject().(*coscheduling.PodGroupList)
	if diff := cmp.Diff(list, copied); !ok || diff != "" {
		t.Fatalf("copy (-of +copy):\n%s", diff)
	}
	item := &copied.Items[0]
	item.Annotations["a"], *item.Spec.ScheduleTimeoutSeconds, item.Status.Conditions[0].Message = "c", 4, "changed"
	if pg.Annotations["a"] != "b" || *pg.Spec.ScheduleTimeoutSeconds != 3 || pg.Status.Conditions[0].Message == "changed" {
		t.Error("the copy shares what it is a copy of")
	}
}
