package gang

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clienttesting "k8s.io/client-go/testing"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	pgv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	pgfake "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned/fake"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing"
	"github.com/lockstep-sh/lockstep/pkg/status"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// says returns a pod whose status has why it waits.
func says(pod *v1.Pod, reason, message string) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: reason, Message: message}}
	return pod
}

func uids(pods []*v1.Pod) (list []types.UID) {
	for _, pod := range pods {
		list = append(list, pod.UID)
	}
	return list
}

// TestWhatMembersSay: each status has what is so now. What was written about missing members is taken back once
// they exist; members that got nothing get no update when there is nothing to report.
func TestWhatMembersSay(t *testing.T) {
	const (
		missing  = `gang "default/train" has 2 of 3 members`
		awaiting = `gang "default/train" has its minimum of 3 members and waits for nodes`
	)
	s := newStage(t, makeNodes(1, 1))
	s.open()
	members := makeMembers("train", 3, 1, nil)
	key := gangspec.Key{Namespace: "default", Name: "train"}
	check := func(sentence, reason, message string, pods ...*v1.Pod) {
		t.Helper()
		saying := s.reporter.pendingConditionOf(key)
		if saying.Reason != reason || saying.Message != message {
			t.Errorf("%s: %s: %s, want %s: %s", sentence, saying.Reason, saying.Message, reason, message)
		}
		if diff := cmp.Diff(uids(pods), uids(saying.Pods)); diff != "" {
			t.Errorf("%s: pods (-want +got):\n%s", sentence, diff)
		}
	}
	check("nothing is known of it", "", "")
	s.see(members[0], members[1])
	check("one is missing", v1alpha1.ReasonGangIncomplete, missing, members[0], members[1])
	s.see(members[2])
	check("it is complete, and nobody was told anything", "", "")
	s.see(says(members[1], v1alpha1.ReasonGangIncomplete, missing))
	check("it is taken back where it was told", v1alpha1.ReasonAwaitingPlacement, awaiting, members[1])
	s.see(says(members[0], v1.PodReasonUnschedulable, "0/1 nodes are available: trouble."))
	check("not where kube-scheduler has tried the pod", v1alpha1.ReasonAwaitingPlacement, awaiting, members[1])
	closed := queueing.Wait{Reason: queueing.Closed, Message: `queue "a" is closed`}
	s.queue.wait.Store(&closed)
	check("all say what keeps them", string(queueing.Closed), closed.Message, members...)
	s.queue.wait.Store(nil)
	s.see(says(members[1], v1alpha1.ReasonAwaitingPlacement, awaiting))
	check("all was taken back", "", "")
	for _, pod := range members {
		s.see(sample.Bound(pod, "node-0000"))
	}
	extra := makeMembers("train", 4, 1, func(_ int, pod *st.PodWrapper) { pod.Annotation(v1alpha1.MinAvailableAnnotation, "3") })[3]
	s.see(says(extra, v1alpha1.ReasonGangIncomplete, missing))
	check("what kube-scheduler places one by one, it explains", "", "")
}

// TestWhenToTell: a gang that lacks pods may be gathering, and says so later than one that waits for its group.
func TestWhenToTell(t *testing.T) {
	for sentence, c := range map[string]struct {
		members int
		says    func(*st.PodWrapper)
		after   map[time.Duration]bool
	}{
		"it lacks pods":             {members: 2, after: map[time.Duration]bool{0: false, 2 * time.Second: false, 6 * time.Second: true}},
		"it waits for another gang": {members: 3, says: func(pod *st.PodWrapper) { pod.Annotation(v1alpha1.GroupsAnnotation, `["default/other"]`) }, after: map[time.Duration]bool{0: false, 2 * time.Second: true}},
		"it lacks a role":           {members: 3, says: func(pod *st.PodWrapper) { pod.Annotation(v1alpha1.MinByRoleAnnotation, `{"head":1}`) }, after: map[time.Duration]bool{0: false, 2 * time.Second: true}},
		"it lacks nothing":          {members: 3, after: map[time.Duration]bool{0: false, 6 * time.Second: false}},
	} {
		for age, want := range c.after {
			s := newStage(t, makeNodes(1, 1))
			s.open()
			s.see(makeMembers("train", 3, 1, func(_ int, pod *st.PodWrapper) {
				if pod.CreationTimestamp(metav1.NewTime(time.Now().Add(-age))); c.says != nil {
					c.says(pod)
				}
			})[:c.members]...)
			if e, got := s.reporter.toTell(gangspec.Key{Namespace: "default", Name: "train"}); got != want {
				t.Errorf("%s: after %s %s is told: %t, want %t", sentence, age, e.Reason, got, want)
			}
		}
	}
}

// TestWhetherNodesHelp: members of a gang that does not fit are Unschedulable where more nodes would help, and have
// other reasons otherwise; kube-scheduler writes the same on them, not what it has found.
func TestWhetherNodesHelp(t *testing.T) {
	s := newStage(t, makeNodes(1, 1))
	s.open()
	members := makeMembers("train", 3, 1, nil)
	s.see(members...)
	key := gangspec.Key{Namespace: "default", Name: "train"}
	holder := s.gangs.Holder(key.String())
	s.attempt(t, gangstate.Outcome{Why: map[gangspec.Key]string{key: "no room"}, Scattered: map[gangspec.Key]string{key: rack}})
	check := func(sentence, reason string, alone bool) {
		t.Helper()
		if e, _ := s.Explanation(key); e.Reason != reason {
			t.Errorf("%s: the gang is told %s, want %s", sentence, e.Reason, reason)
		}
		if e, _ := s.Explanation(key); (e.Topology == rack) != alone {
			t.Errorf("%s: the topology that alone keeps it waiting is %q; want one: %t", sentence, e.Topology, alone)
		}
		for _, member := range members {
			if e, explains := s.gangs.Explains(member); !explains || e.Reason != reason {
				t.Errorf("%s: kube-scheduler writes of member %s: %s (%t), want %s", sentence, member.Name, e.Reason, explains, reason)
			}
		}
	}
	check("it does not fit", v1alpha1.ReasonUnschedulable, true)
	if at, _ := s.registry.Progress(members[0]); !at.WaitsForRoom {
		t.Error("it does not fit, and does not count as waiting for room")
	}
	e, _ := s.Explanation(key)
	at := slices.IndexFunc(members, func(pod *v1.Pod) bool { return pod.UID == e.Leader })
	if at < 0 {
		t.Fatalf("%q led the attempt, which is no member", e.Leader)
	}
	if pods := s.reporter.pendingConditionOf(key).Pods; len(pods) != 3 {
		t.Errorf("%d members are told why, want all", len(pods))
	}
	s.see(says(members[at], v1.PodReasonUnschedulable, "0/1 nodes are available: no room. preemption: nobody."))
	if pods := s.reporter.pendingConditionOf(key).Pods; len(pods) != 2 || slices.ContainsFunc(pods, func(pod *v1.Pod) bool { return pod.UID == e.Leader }) {
		t.Errorf("members %v are told why, want those on which kube-scheduler has not written it", uids(pods))
	}
	s.queue.limit.Store(&queueing.Wait{Reason: queueing.Capability})
	check("its queue would not let it have more", "QueueCapability", false)
	s.queue.limit.Store(nil)
	s.holds.Nominate(hold.Hold{For: members[0].UID, Holder: holder, Node: "node-0000"})
	check("room is being made for it", v1alpha1.ReasonPreemptionInProgress, false)
	idle := newStatusReporter(s.Gang, nil, 10, status.New(await.Closed()), await.Closed()) // which takes nothing from its queue
	s.holds.OnRenominate(idle.noteRenominated)
	s.holds.DropNominations(holder)
	if idle.changed.Len() == 0 {
		t.Fatal("that room is not being made any more has not been noticed")
	}
	for _, want := range []change{{pod: members[0].UID}, {gang: key}} {
		got, _ := idle.changed.Get()
		if got != want {
			t.Errorf("%+v has changed, want %+v", got, want)
		}
		must.Succeed(t, idle.report(s.ctx, got))
	}
	check("that came to nothing", v1alpha1.ReasonUnschedulable, true)
	s.attempt(t, gangstate.Outcome{Why: map[gangspec.Key]string{key: "no room"}, Reason: v1alpha1.ReasonMemberRejected})
	check("a member is rejected", v1alpha1.ReasonMemberRejected, false)
	if at, _ := s.registry.Progress(members[0]); at.WaitsForRoom {
		t.Error("a member is rejected, and it counts as waiting for room")
	}
	s.queue.wait.Store(&queueing.Wait{Reason: queueing.Overused})
	check("so it is, whatever share its queue has", v1alpha1.ReasonMemberRejected, false)
	s.queue.wait.Store(&queueing.Wait{Reason: queueing.Turn})
	check("it is another's turn", "QueueTurn", false)
}

// TestWhetherNodesHelpOne: for a gang of one kube-scheduler writes what it finds, unless its attempt has another
// result.
func TestWhetherNodesHelpOne(t *testing.T) {
	s := newStage(t, makeNodes(1, 1))
	s.open()
	only := makeMembers("only", 1, 1, nil)
	s.see(only...)
	word := func(sentence string, want bool) {
		t.Helper()
		if _, got := s.gangs.Explains(only[0]); got == want {
			t.Errorf("%s: kube-scheduler writes its own words: %t, want %t", sentence, !got, want)
		}
	}
	word("of a gang of one there is nothing else to say", true)
	s.attempt(t, gangstate.Outcome{Why: map[gangspec.Key]string{{Namespace: "default", Name: "only"}: "no volume"}, Reason: v1alpha1.ReasonMemberRejected})
	word("but where its attempt came to something else", false)
}

// attempt ends the leader's attempt with an outcome.
func (s *stage) attempt(t *testing.T, outcome gangstate.Outcome) {
	t.Helper()
	led := false
	s.gangs.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects {
		for _, key := range g.Keys() {
			g.Lead(key.String(), now) // it is tried again
		}
		for _, pod := range g.Unplaced() {
			if v := g.BeginCycle(pod); v.Verdict == gangstate.Lead {
				led = true
				_, e := g.Planned(v.Attempt, outcome, now)
				return e
			}
		}
		return gangstate.Effects{}
	})
	if !led {
		t.Fatal("nobody leads")
	}
}

// TestStandby: a process that does not schedule remembers no gangs to report; all gangs that exist then are reported
// once it does.
func TestStandby(t *testing.T) {
	s := newStage(t, makeNodes(1, 1))
	begins := make(chan struct{})
	s.reporter = newStatusReporter(s.Gang, nil, 10, status.New(begins), begins)
	for i := range 100 {
		key := gangspec.Key{Namespace: "default", Name: fmt.Sprint("gone-", i)}
		s.reporter.recordEffects(gangstate.Effects{Changed: sets.New(key)})
		s.reporter.noteRenominated(types.UID(key.Name))
	}
	s.see(makeMembers("train", 3, 1, nil)[:2]...)
	close(begins)
	s.reporter.all()
	got, _ := s.reporter.changed.Get()
	if want := (change{gang: gangspec.Key{Namespace: "default", Name: "train"}}); got != want || s.reporter.changed.Len() > 0 {
		t.Errorf("to be reported: %+v, and %d more, want the gang that is there", got, s.reporter.changed.Len())
	}
}

// TestPodGroupRefused: the write to a PodGroup is repeated where it failed, and no event is repeated for that.
func TestPodGroupRefused(t *testing.T) {
	s := newStage(t, makeNodes(1, 1))
	groups, writes := pgfake.NewSimpleClientset(), 0
	groups.PrependReactor("patch", "podgroups", func(clienttesting.Action) (bool, runtime.Object, error) {
		if writes++; writes == 1 {
			return true, nil, errors.New("a webhook says so")
		}
		return true, &pgv1alpha1.PodGroup{}, nil
	})
	s.reporter = newStatusReporter(s.Gang, groups, 10, status.New(await.Closed()), await.Closed())
	s.open()
	key := gangspec.Key{Namespace: "default", Name: "train"}
	s.gangs.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects {
		return g.Describe(gangspec.Community, key, &gangspec.PodGroupDescription{UID: "u"}, now)
	})
	s.see(makeMembers("train", 3, 1, nil)...)
	s.attempt(t, gangstate.Outcome{Why: map[gangspec.Key]string{key: "no room"}})
	if err := s.reporter.tellNews(s.ctx, key); err == nil || writes != 1 {
		t.Fatalf("at first: %d writes, error %v, want one that fails", writes, err)
	}
	e, _ := s.Explanation(key)
	if told, _ := s.reporter.lastReported.Load(key); told != textOf(e) {
		t.Errorf("an event told %q, want %q", told, textOf(e))
	}
	s.reporter.news.AddRateLimited(key) // as workloop does
	must.Succeed(t, s.reporter.tellNews(s.ctx, key))
	s.reporter.news.Forget(key)
	must.Succeed(t, s.reporter.tellNews(s.ctx, key))
	if writes != 2 {
		t.Errorf("%d writes, want two", writes)
	}
}

// TestPodGroupMadeAgain: a PodGroup that is recreated under its name while a gang waits gets the condition that the one
// before had.
func TestPodGroupMadeAgain(t *testing.T) {
	s := newStage(t, makeNodes(1, 1))
	groups, writes := pgfake.NewSimpleClientset(), 0
	groups.PrependReactor("patch", "podgroups", func(clienttesting.Action) (bool, runtime.Object, error) {
		writes++
		return true, &pgv1alpha1.PodGroup{}, nil
	})
	s.reporter = newStatusReporter(s.Gang, groups, 10, status.New(await.Closed()), await.Closed())
	s.open()
	key := gangspec.Key{Namespace: "default", Name: "train"}
	s.see(makeMembers("train", 3, 1, nil)...)
	for i, uid := range []types.UID{"one", "one", "another"} {
		s.gangs.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects {
			return g.Describe(gangspec.Community, key, &gangspec.PodGroupDescription{UID: uid}, now)
		})
		if i == 0 {
			s.attempt(t, gangstate.Outcome{Why: map[gangspec.Key]string{key: "no room"}})
		}
		must.Succeed(t, s.reporter.tellNews(s.ctx, key))
		if want := []int{1, 1, 2}[i]; writes != want {
			t.Errorf("PodGroup %s: %d writes, want %d", uid, writes, want)
		}
	}
}
