package explain

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
)

// TestCounts: a report counts members as kubectl gang list does: those that succeeded, and not those that are being
// deleted or have scheduling gates.
func TestCounts(t *testing.T) {
	pod := func(name string, change func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: apitypes.UID(name), Annotations: map[string]string{v1alpha1.GangNameAnnotation: "train", v1alpha1.MinAvailableAnnotation: "4"}}}
		change(p)
		return p
	}
	on := func(phase v1.PodPhase) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.NodeName, p.Status.Phase = "n", phase
			if phase == v1.PodSucceeded {
				p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
			}
		}
	}
	dying := func(p *v1.Pod) {
		on(v1.PodRunning)(p)
		p.DeletionTimestamp = &metav1.Time{}
	}
	gated := func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "later"}} }
	for want, pods := range map[string][]*v1.Pod{
		"team/train waits: 3 of its minimum of 4 members are there": {
			pod("a", on(v1.PodSucceeded)), pod("b", on(v1.PodRunning)), pod("c", func(*v1.Pod) {}), pod("d", dying), pod("e", dying)},
		`team/train waits: gang "team/train" has 3 of 4 members (and 1 with scheduling gates)`: {
			pod("a", on(v1.PodRunning)), pod("b", on(v1.PodRunning)), pod("c", func(*v1.Pod) {}), pod("d", gated)},
	} {
		g := view.Gangs(view.GangsIn{Pods: pods})[0]
		r := newReport("team/train", pods, &g)
		r.tell(&g, nil)
		r.judge(&g)
		if r.Verdict != want || r.Members != 3 || r.Bound != 2 {
			t.Errorf("%d of %d members have a node; %q, want %q", r.Bound, r.Members, r.Verdict, want)
		}
	}
}
