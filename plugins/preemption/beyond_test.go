package preemption

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestSearchBeyondTheNode: of two members with 4 GPUs each, or one, at least one has to go to n2, and pods on other
// nodes decide whether it may. The members ask nothing of others.
func TestSearchBeyondTheNode(t *testing.T) {
	nodes := []*v1.Node{node("n1", 4, "r1"), node("n2", 5, "r1"), node("n3", 4, "r3")}
	alone := func(name string, priority int32, gpus int, on string) *v1.Pod {
		pod := member(name, 0, 0, priority, gpus, on)
		pod.Name = name
		return pod
	}
	repels := func(pod *v1.Pod) *v1.Pod {
		return (&st.PodWrapper{Pod: *pod}).PodAntiAffinityIn("app", rack, []string{"p"}, st.PodAntiAffinityWithRequiredReq).Obj()
	}
	claims := func(pod *v1.Pod) *v1.Pod { return (&st.PodWrapper{Pod: *pod}).PVC("p-0").Obj() }
	full := []*v1.Pod{alone("full", 200, 4, "n1")}
	for sentence, c := range map[string]struct {
		pods    []*v1.Pod
		members int
		claim   bool
		want    string
	}{
		"one on another node keeps the member off the rack": {
			pods: []*v1.Pod{repels(alone("E", 5, 0, "n1")), alone("Y", 200, 4, "n3")}, members: 1, want: "E",
		},
		"it goes, too, where one on the node need not": {
			pods: []*v1.Pod{repels(alone("E", 5, 0, "n1")), alone("X", 10, 1, "n2"), alone("V", 20, 4, "n3")}, members: 2, want: "E V",
		},
		"it stays where the member may go elsewhere": {
			pods: []*v1.Pod{repels(alone("E", 5, 0, "n1")), alone("V", 4, 4, "n3")}, members: 1, want: "V",
		},
		"one on another node uses the claim": {
			pods: []*v1.Pod{claims(alone("E", 5, 0, "n1")), alone("Y", 200, 4, "n3")}, members: 1, claim: true, want: "E",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			preemptor := members("p", c.members, c.members, 100, 4)
			for i, pod := range preemptor {
				preemptor[i] = (&st.PodWrapper{Pod: *pod}).Label("app", "p").Obj()
			}
			var objects []runtime.Object
			if c.claim {
				preemptor[0] = claims(preemptor[0])
				objects = forOnePod(nodes, preemptor[0])
			}
			s := newStage(t, nodes, slices.Concat(full, c.pods), objects...)
			if got := s.victimsOf(t, s.demand(t, gangspec.Spec{}, preemptor...)); got != c.want {
				t.Errorf("victims %q, want %q", got, c.want)
			}
		})
	}
}

// TestSearchForMembersThatRunBesideEachOther: the node that is free takes the second member only once the first is
// placed beside it, and for that a pod is evicted.
func TestSearchForMembersThatRunBesideEachOther(t *testing.T) {
	leader, worker := st.PodWrapper{Pod: *member("p", 0, 2, 100, 4, "")}, st.PodWrapper{Pod: *member("p", 1, 2, 100, 2, "")}
	preemptor := []*v1.Pod{
		leader.Label("role", "leader").Obj(),
		worker.PodAffinityIn("role", rack, []string{"leader"}, st.PodAffinityWithRequiredReq).Obj(),
	}
	s := newStage(t, []*v1.Node{node("n0", 2, "r0"), node("n1", 4, "r0")}, members("low", 1, 1, 10, 4, "n1"))
	if got, want := s.victimsOf(t, s.demand(t, gangspec.Spec{}, preemptor...)), "low-0"; got != want {
		t.Errorf("victims %q, want %q", got, want)
	}
}
