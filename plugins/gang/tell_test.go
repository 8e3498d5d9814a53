package gang

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/roster"
)

// says has a pod say in its status why it waits.
func says(pod *v1.Pod, reason, message string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message}}
	return pod
}

// keeper keeps all gangs, or none, and says why.
type keeper struct {
	roster.Keeper
	keeps           bool
	reason, message string
}

func (k *keeper) Waiting(*v1.Pod) bool           { return k.keeps }
func (k *keeper) Keeps(*v1.Pod) (string, string) { return k.reason, k.message }

// TestWhatMembersSay: each says what is so now. What was told and is not so any more is taken back; who was told nothing is
// not told that there is nothing to tell.
func TestWhatMembersSay(t *testing.T) {
	const (
		missing  = `gang "default/train" has 2 of 3 members`
		awaiting = `gang "default/train" has its minimum of 3 members and waits for nodes`
	)
	s := newStage(t, makeNodes(1, 1))
	s.open()
	members := makeMembers("train", 3, 1, nil)
	check := func(sentence, reason, message string, pods ...*v1.Pod) {
		t.Helper()
		saying := s.tell.say(train)
		if saying.Reason != reason || saying.Message != message {
			t.Errorf("%s: %s: %s, want %s: %s", sentence, saying.Reason, saying.Message, reason, message)
		}
		if diff := cmp.Diff(uidsOf(pods), uidsOf(saying.Pods)); diff != "" {
			t.Errorf("%s: pods (-want +got):\n%s", sentence, diff)
		}
	}
	check("nothing is known of it", "", "")
	s.see(members[0], members[1])
	check("one is missing", v1alpha1.ReasonGangIncomplete, missing, members[0], members[1])
	s.see(members[2])
	check("it is complete, and nobody was told anything", v1alpha1.ReasonAwaitingPlacement, awaiting)
	s.see(says(members[1], v1alpha1.ReasonGangIncomplete, missing))
	check("it is taken back where it was told", v1alpha1.ReasonAwaitingPlacement, awaiting, members[1])
	s.see(says(members[0], v1.PodReasonUnschedulable, "0/1 nodes are available: trouble."))
	s.see(says(members[2], v1.PodReasonSchedulerError, "trouble"))
	check("not where kube-scheduler has tried the pod", v1alpha1.ReasonAwaitingPlacement, awaiting, members[1])
	queue := &keeper{keeps: true}
	s.roster.SetKeeper(queue)
	s.see(says(members[0], "QueueClosed", `queue "a" is closed`))
	check("not what a queue says that keeps it", v1alpha1.ReasonAwaitingPlacement, awaiting, members[1])
	queue.keeps = false
	check("if none does that is taken back, too", v1alpha1.ReasonAwaitingPlacement, awaiting, members[0], members[1])
	queue.reason, queue.message = "QueueClosed", `queue "a" is closed`
	check("all say what it says now", queue.reason, queue.message, members...)
	queue.reason = ""
	for _, pod := range members {
		s.see(bound(pod, "node-0000"))
	}
	check("it runs", "", "")
	extra := makeMembers("train", 4, 1, func(_ int, pod *st.PodWrapper) { pod.Annotation(v1alpha1.MinAvailableAnnotation, "3") })[3]
	s.see(says(extra, v1alpha1.ReasonGangIncomplete, missing))
	check("what kube-scheduler places one by one, it explains", "", "")
}
