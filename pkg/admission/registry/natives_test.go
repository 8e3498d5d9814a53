package registry

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	communityv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample/queuecases"
)

// nativeGroup returns the PodGroup default/train, of the basic policy, or a gang of 2.
func nativeGroup(basic bool, queue string) *schedulingv1beta1.PodGroup {
	pg := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: train.Namespace, Name: train.Name, Labels: map[string]string{v1alpha1.QueueLabel: queue}}}
	if basic {
		pg.Spec.SchedulingPolicy.Basic = &schedulingv1beta1.BasicSchedulingPolicy{}
	} else {
		pg.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: 2}
	}
	return pg
}

// groupedPod returns a pod that names that PodGroup.
func groupedPod() *v1.Pod {
	pod := makeMembers("train", 1)[0]
	pod.Annotations = nil
	pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &train.Name}
	return pod
}

func withPods(t *testing.T, s *stage, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		must.Succeed(t, s.podsByGang.Add(pod))
	}
}

// knows reports whether the state machine has a pod as a member of a gang.
func (s *stage) knows(pod *v1.Pod) (known bool) {
	s.of(testProfile).WithGangs(func(g *gangstate.Gangs) { _, known = g.Progress(pod.UID) })
	return known
}

// TestBasicIsNoGang: its pods are released when it becomes known, and are members again when another PodGroup has its
// name.
func TestBasicIsNoGang(t *testing.T) {
	s := newStage(t, testProfile)
	pod, annotated := groupedPod(), makeMembers("train", 2)[1]
	withPods(t, s, pod)
	var moved []string
	s.OnMove(func(profile string, key gangspec.Key) { moved = append(moved, profile+" "+key.String()) })
	s.podSeen(s.ctx, nil, pod)
	if s.InNoGang(pod) || s.IsEvictedAlone(pod) || !s.knows(pod) {
		t.Fatal("a pod whose PodGroup is not known is in no gang")
	}
	s.groupSeen(s.ctx, gangspec.Native, nativeGroup(true, "research"))
	if _, member := s.GangOf(pod); member || !s.InNoGang(pod) || !s.IsEvictedAlone(pod) || s.knows(pod) {
		t.Error("a pod of the basic policy is in a gang")
	}
	if n := len(s.acted[testProfile].Activate); n == 0 {
		t.Error("its gate is not asked again")
	}
	if s.InNoGang(annotated) || s.IsEvictedAlone(annotated) {
		t.Error("one that is in a gang by annotation is in none")
	}
	if queue := s.PodGroups(testProfile, train).QueueOf(pod); queue != "research" {
		t.Errorf("its queue is %q", queue)
	}
	s.groupSeen(s.ctx, gangspec.Native, nativeGroup(true, "research"))
	s.groupSeen(s.ctx, gangspec.Native, nativeGroup(true, "interns"))
	if diff := cmp.Diff([]string{testProfile + " default/train", testProfile + " default/train"}, moved); diff != "" {
		t.Errorf("told of queues (-want +got):\n%s", diff)
	}
	if n := len(s.acted[testProfile].Problems); n > 0 {
		t.Errorf("%d problems are told of what is understood", n)
	}
	odd := nativeGroup(true, "interns")
	odd.Spec.ParentCompositePodGroupName, odd.Spec.Priority = &train.Name, new(int32(7))
	s.groupSeen(s.ctx, gangspec.Native, odd)
	s.podSeen(s.ctx, pod, pod)
	s.podSeen(s.ctx, pod, pod)
	if n := len(s.acted[testProfile].Problems); n != 2 {
		t.Errorf("%d problems are told of a parent and another priority, want each once", n)
	}
	if s.knows(pod) {
		t.Error("a pod of the basic policy joins a gang")
	}
	s.groupSeen(s.ctx, gangspec.Native, nativeGroup(false, ""))
	if s.InNoGang(pod) || s.IsEvictedAlone(pod) || !s.knows(pod) {
		t.Error("a pod of a gang that has the name of a PodGroup of before is in none")
	}
	if len(moved) != 3 {
		t.Errorf("told of queues %d times, want once more: its pods are in no queue any longer", len(moved))
	}
}

// TestBasicBeforeItsPods: pods that wait at the gate since their PodGroup was not known are asked again when it comes,
// although they have not been seen here.
func TestBasicBeforeItsPods(t *testing.T) {
	s := newStage(t, testProfile)
	pod, bound := groupedPod(), groupedPod()
	bound.Name, bound.UID, bound.Spec.NodeName = "bound", "bound", "n"
	withPods(t, s, pod, bound)
	s.groupSeen(s.ctx, gangspec.Native, nativeGroup(true, ""))
	if activated := s.acted[testProfile].Activate; len(activated) != 1 || activated[0].UID != pod.UID {
		t.Errorf("the gate is asked again for %v, want the pod that waits", activated)
	}
}

// TestBasicGhost: a pod that was still a member when its PodGroup became basic is none once it is gone.
func TestBasicGhost(t *testing.T) {
	s := newStage(t, testProfile)
	pod := groupedPod()
	withPods(t, s, pod)
	s.podSeen(s.ctx, nil, pod)
	s.natives.put(train, gangspec.ReadNative(nativeGroup(true, "")))
	s.podGone(s.ctx, pod)
	if s.knows(pod) {
		t.Error("a pod that is gone is a member")
	}
}

// TestBasicGone: pods that name a PodGroup which is gone wait for another one.
func TestBasicGone(t *testing.T) {
	s := newStage(t, testProfile)
	pod := groupedPod()
	withPods(t, s, pod)
	s.groupSeen(s.ctx, gangspec.Native, nativeGroup(true, ""))
	s.groupGone(s.ctx, gangspec.Native, nativeGroup(true, ""))
	if s.InNoGang(pod) || !s.knows(pod) {
		t.Error("a pod whose PodGroup is gone is in no gang")
	}
	if e, ok := s.of(testProfile).Explanation(train); !ok || e.Message != `gang "default/train" has no minimum: its PodGroup does not exist` {
		t.Errorf("it says %q", e.Message)
	}
}

// TestNativesLeft: where kube-scheduler handles native PodGroups, none of their pods is in a gang here, and they are
// evicted whole, except those of the basic policy.
func TestNativesLeft(t *testing.T) {
	s := newStage(t, testProfile)
	s.leaveNative = true
	var moved []string
	s.OnMove(func(profile string, key gangspec.Key) { moved = append(moved, profile+" "+key.String()) })
	pod := groupedPod()
	s.podSeen(s.ctx, nil, pod)
	s.groupSeen(s.ctx, gangspec.Native, nativeGroup(false, ""))
	if _, member := s.GangOf(pod); !member || !s.InNoGang(pod) || s.knows(pod) || s.IsEvictedAlone(pod) {
		t.Error("a native gang is taken for one of ours, or its pods for single ones")
	}
	s.groupSeen(s.ctx, gangspec.Native, nativeGroup(true, ""))
	if _, member := s.GangOf(pod); member || !s.InNoGang(pod) || !s.IsEvictedAlone(pod) {
		t.Error("a pod of the basic policy is evicted with others")
	}
	if diff := cmp.Diff([]string{testProfile + " default/train"}, moved); diff != "" {
		t.Errorf("told that its pods are in no gang (-want +got):\n%s", diff)
	}
	if e := s.acted[testProfile]; len(e.Activate)+len(e.Changed) > 0 {
		t.Errorf("something is done about it: %v", e)
	}
}

// TestQueueOf: also where kube-scheduler handles native PodGroups.
func TestQueueOf(t *testing.T) {
	for sentence, c := range queuecases.Cases() {
		for _, leaveNative := range []bool{false, true} {
			s := newStage(t, testProfile)
			s.leaveNative = leaveNative
			podGroups := func(key gangspec.Key) gangspec.PodGroups { return s.PodGroups(testProfile, key) }
			queue := func() string {
				return gangspec.QueueOf(c.Pod, podGroups, func(string) string { return queuecases.OfNamespace })
			}
			s.podSeen(s.ctx, nil, c.Pod)
			last := queue()
			s.OnMove(func(string, gangspec.Key) { last = queue() })
			if c.Community != nil {
				s.groupSeen(s.ctx, gangspec.Community, &communityv1alpha1.PodGroup{ObjectMeta: c.Community.ObjectMeta, Spec: c.Community.Spec})
			}
			if c.Native != nil {
				s.groupSeen(s.ctx, gangspec.Native, c.Native)
			}
			if got := queue(); got != c.Want || last != got {
				t.Errorf("%s: queue %q, %q when it was last told of, want %q; native ones are left to kube-scheduler: %t", sentence, got, last, c.Want, leaveNative)
			}
		}
	}
}
