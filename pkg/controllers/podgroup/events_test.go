package podgroup

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstatus"
	"github.com/lockstep-sh/lockstep/test/helpers/members"
)

// TestMemberRefusedEvent: once for each refusal, and not for other pods that fail.
func TestMemberRefusedEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		failed int32 // as the status has it
		told   int
		pods   []*v1.Pod
		want   string
	}{
		"a kubelet refused one": {0, 0, members.Pods("running", "refused by kubelet"),
			`gang "team/train": 1 refused: pod train-1: Refused by the kubelet of node: OutOfcpu (no cpu)`},
		"it was told":                        {1, 1, members.Pods("running", "refused by kubelet"), ""},
		"it was told by another process":     {1, 0, members.Pods("running", "refused by kubelet"), ""},
		"it was told, and another one fails": {1, 1, members.Pods("running", "refused by kubelet", "failed"), ""},
		"one failed":                         {0, 0, members.Pods("running", "failed"), ""},
		"nothing has failed":                 {0, 0, members.Pods("running", "waiting"), ""},
	} {
		pg := members.PodGroup(2, schedulingv1alpha1.PodGroupRunning)
		pg.Status.Failed = tc.failed
		got := ""
		if e := refusedByKubelet(pg, gangstatus.FactsOf(members.Key, gangspec.ReadPodGroup(pg, &pg.Spec), tc.pods, &gangstate.History{}), tc.told); e != nil {
			got = e.Note
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
