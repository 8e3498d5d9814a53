package evictions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestEvict: the result of the eviction of a pod, and what is known of the pod then.
func TestEvict(t *testing.T) {
	onNode, waiting := members("v", 1, 0, "n0"), members("v", 1, 0, "")
	done := members("v", 1, 0, "n0")
	done[0].Status.Phase = v1.PodSucceeded
	member := members("v", 1, 2, "")
	placed := members("v", 1, 2, "n0")
	no := func() bool { return false }
	for sentence, c := range map[string]struct {
		now    []*v1.Pod // as the API server has it; the eviction is that of the pod on n0
		turn   Eviction
		permit bool // it is at Permit
		runs   known
		refuse func(string, bool) error

		want     Outcome
		fails    bool
		left     string
		marked   bool
		underway int
		refused  bool
		event    string
	}{
		"a pod on its node ends":               {now: onNode, want: Ends, underway: 1, event: "Normal Preempted why"},
		"also on the node where it was chosen": {now: onNode, turn: Eviction{From: "n0"}, want: Ends, underway: 1, event: "Normal Preempted why"},
		"one on another node runs on":          {now: onNode, turn: Eviction{From: "n1"}, want: RunsOn, left: "v-0"},
		"one that waits again waits":           {now: waiting, want: RunsOn, left: "v-0"},
		"one that is gone is gone":             {want: WasGone, underway: 1},
		"one that has succeeded is left alone": {now: done, want: RunsOn, left: "v-0"},
		"one on its way is called off":         {now: waiting, permit: true, want: CalledOff, left: "v-0", event: "Normal Preempted why (before it was on its node)"},
		"a member on its way is known":         {now: member, runs: known{{Namespace: "default", Name: "v"}: {runs("v", 2, placed...)}}, want: Ends, underway: 1, event: "Normal Preempted why"},
		"one that gave its place back is not":  {now: member, runs: known{{Namespace: "default", Name: "v"}: {runs("v", 2)}}, want: RunsOn, left: "v-0"},
		"one that is needed no more runs on":   {now: onNode, turn: Eviction{Needed: no}, want: RunsOn, left: "v-0"},
		"but is not asked about once marked":   {now: onNode, turn: Eviction{Marked: true, Needed: no}, want: Ends, underway: 1, event: "Normal Preempted why"},
		"one that is refused is left alone": {
			now: onNode, refuse: func(name string, _ bool) error { return forbidden(name) }, want: WasGone, fails: true, left: "v-0", marked: true, refused: true,
		},
		"one of which it is not known is not waited for": {
			now: onNode, refuse: func(string, bool) error { return apierrors.NewInternalError(errors.New("no leader")) }, want: WasGone, fails: true, left: "v-0", marked: true,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, c.runs, c.now...)
			s.refuse = c.refuse
			pod := onNode[0]
			if c.permit {
				s.InFlight = onTheirWay{pod.UID: {}}
			}
			p := preemptionOf("p")
			s.Underway.AddVictims(s.Gangs, p, []*v1.Pod{pod})
			c.turn.Pod, c.turn.Note = pod, "why"
			got, err := s.Evict(s.ctx, p, c.turn)
			if got != c.want || c.fails != (err != nil) {
				t.Errorf("outcome %v, %v, want %v; fails: %v", got, err, c.want, c.fails)
			}
			if left := s.left(t); left != c.left {
				t.Errorf("left %q, want %q", left, c.left)
			}
			if c.left != "" && (objectstate.EvictedBy(s.now(t, "v-0")) == profile) != c.marked {
				t.Errorf("marked: %v, want %v", !c.marked, c.marked)
			}
			if n := s.Underway.Victims(hold.Holder{Group: "p"}); n != c.underway || s.Underway.Refusals(time.Now())[pod.UID] != c.refused {
				t.Errorf("%d victims are waited for, want %d; refused: %v", n, c.underway, s.Underway.Refusals(time.Now()))
			}
			event := ""
			if len(s.events.Events) > 0 {
				event = <-s.events.Events
			}
			if event != c.event {
				t.Errorf("event %q, want %q", event, c.event)
			}
		})
	}
}

// TestTakenFromItsPreemption: a pod that another preemption evicts by now stays its victim, whatever comes of the
// first.
func TestTakenFromItsPreemption(t *testing.T) {
	pod := members("v", 1, 0, "n0")[0]
	s := newStage(t, nil, pod)
	first, second := preemptionOf("p"), preemptionOf("q")
	s.Underway.AddVictims(s.Gangs, first, []*v1.Pod{pod})
	s.Underway.AddVictims(s.Gangs, second, []*v1.Pod{pod})
	if got, err := s.Evict(s.ctx, first, Eviction{Pod: pod, Needed: func() bool { return false }}); got != RunsOn || err != nil {
		t.Errorf("outcome %v, %v, want that it runs on", got, err)
	}
	if n := s.Underway.Victims(second.Holder); n != 1 {
		t.Errorf("the second awaits %d victims, want one", n)
	}
}

// TestRehearse: pods whose eviction would be refused are left alone, and no pod is evicted.
func TestRehearse(t *testing.T) {
	pods := append(members("v", 2, 0, "n0"), members("w", 1, 0, "")...)
	s := newStage(t, known{}, pods...)
	s.refuse = func(name string, dry bool) error {
		if !dry || name != "v-1" {
			return forbidden(name)
		}
		return nil
	}
	for i, fails := range []bool{true, false, false} {
		if errs := s.RehearseAll(s.ctx, pods[i:i+1]); fails != (len(errs) > 0) {
			t.Errorf("pod %s: %v", pods[i].Name, errs)
		}
	}
	if refused := s.Underway.Refusals(time.Now()); len(refused) != 1 || !refused["v-0"] || s.left(t) != "v-0 v-1 w-0" {
		t.Errorf("refused %v, left %q", refused, s.left(t))
	}
}

// TestOnlyThisPod: a call for one pod does not reach another of its name.
func TestOnlyThisPod(t *testing.T) {
	was := members("v", 1, 0, "n0")[0]
	again := was.DeepCopy()
	again.UID = "another"
	s := newStage(t, known{}, again)
	seen := map[string]string{}
	s.client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		seen["delete"] = string(*a.(clienttesting.DeleteAction).GetDeleteOptions().Preconditions.UID)
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), "v-0", errors.New("the UID in the precondition is not that of the record"))
	})
	s.client.PrependReactor("patch", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		seen["patch"] = string(a.(clienttesting.PatchAction).GetPatch())
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), "v-0", errors.New("another UID"))
	})
	if gone, err := s.delete(s.ctx, was, metav1.DeleteOptions{}); !gone || err != nil {
		t.Errorf("deleting: %v, %v, want that it is gone", gone, err)
	}
	if gone, err := s.Mark(s.ctx, was, 0); gone != WasGone || err != nil {
		t.Errorf("marking: %v, %v, want that it is gone", gone, err)
	}
	if seen["delete"] != string(was.UID) || !strings.Contains(seen["patch"], `"uid":"`+string(was.UID)+`"`) {
		t.Errorf("the API server was asked about %v", seen)
	}
	// The same answer about the pod itself is an error.
	if gone, err := s.delete(s.ctx, again, metav1.DeleteOptions{}); gone || err == nil {
		t.Errorf("a conflict about the pod itself: %v, %v, want an error", gone, err)
	}
}

// TestVictimsThatDoNotEnd: a victim whose node is down is waited for no longer than its grace period and a fixed time.
// Then its preemptor looks for others.
func TestVictimsThatDoNotEnd(t *testing.T) {
	for sentence, c := range map[string]struct {
		since time.Duration
		want  int
	}{"it has its time": {10 * time.Second, 1}, "it should have ended long ago": {time.Minute, 0}} {
		t.Run(sentence, func(t *testing.T) {
			victim := members("v", 1, 0, "n0")[0]
			victim.Finalizers = []string{"example.com/still"}
			now := time.Now()
			victim.DeletionTimestamp = &metav1.Time{Time: now.Add(-c.since)}
			s := newStage(t, known{}, victim)
			told := 0
			s.Underway.OnRelease(func(_ *Preemption, preemptions []*Preemption, _ []string) { told += len(preemptions) })
			s.Underway.AddVictims(s.Gangs, preemptionOf("p"), []*v1.Pod{victim})
			s.ReleaseStuck(now)
			if got := s.Underway.Victims(hold.Holder{Group: "p"}); got != c.want {
				t.Errorf("%d victims are waited for, want %d", got, c.want)
			}
			if told != 1-c.want {
				t.Errorf("%d preemptors are to look for others, want %d", told, 1-c.want)
			}
		})
	}
}

// TestVictimsThatEndedUnseen: a victim that ended before it was recorded is not waited for, and is forgotten.
func TestVictimsThatEndedUnseen(t *testing.T) {
	s, now, p := newStage(t, known{}), time.Now(), hold.Holder{Group: "p"}
	told := 0
	s.Underway.OnRelease(func(*Preemption, []*Preemption, []string) { told++ })
	s.Underway.AddVictims(s.Gangs, preemptionOf("p"), members("v", 1, 0, "n0"))
	s.ReleaseStuck(now)
	if n := s.Underway.Victims(p); n > 0 || told > 0 {
		t.Errorf("%d victims are waited for, %d are to look for others", n, told)
	}
	s.ReleaseStuck(now.Add(2 * endedFor))
	if all := s.Underway.AllVictims(); len(all) > 0 {
		t.Errorf("known are still %v", all)
	}
}

// TestTogether: what runs of a gang is what its profile knows; of a gang that no profile knows, the pods that run, as a
// scheduler that begins now would find them.
func TestTogether(t *testing.T) {
	key := gangspec.Key{Namespace: "default", Name: "v"}
	pods := members("v", 4, 3, "n0")
	pods[1].Spec.NodeName = ""
	pods[2].Status.Phase = v1.PodSucceeded
	pods[3].DeletionTimestamp, pods[3].Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/still"}
	others := members("w", 2, 1, "n0")
	elsewhere := members("v", 1, 3, "n0")[0]
	elsewhere.Namespace, elsewhere.UID = "other", "other-v-0"
	ofAnother := members("v", 6, 3, "n0")[5]
	ofAnother.Spec.SchedulerName = "another"
	all := append(slices.Concat(pods, others), elsewhere, ofAnother)
	silent, garbled := members("v", 3, 3, "n0"), members("v", 3, 3, "n0")
	for i := range silent {
		delete(silent[i].Annotations, v1alpha1.MinAvailableAnnotation)
		garbled[i].Annotations[v1alpha1.MinAvailableAnnotation] = "many"
	}
	saying := func(minimum int32) gangspec.PodGroups { return gangspec.PodGroups{{Min: minimum}} }
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		runs Gangs
		want string
	}{
		"its profile knows it":              {all, known{key: {runs("v", 1, pods[1], pods[0])}}, "v: v-1 v-0 of 1"},
		"and that nothing runs of it":       {all, known{key: {runs("v", 1)}}, ""},
		"and those that start with it":      {all, known{key: {runs("u", 1, pods[2]), runs("v", 1, pods[0])}}, "u: v-2 of 1, v: v-0 of 1"},
		"but not those that do not run":     {all, known{key: {runs("u", 2), runs("v", 1, pods[0])}}, "v: v-0 of 1"},
		"no profile does":                   {all, known{}, "v: v-0 of 2"},
		"and nothing runs of it":            {pods[1:4], known{}, ""},
		"it knows only others of its group": {all, known{key: {runs("w", 1, others...)}}, "v: v-0 of 2"},
		"nobody says the minimum":           {silent, known{}, "v: v-0 v-1 v-2 of 3"},
		"its PodGroup says it":              {silent, described{said: saying(2)}, "v: v-0 v-1 v-2 of 2"},
		"fewer run than its PodGroup says":  {silent, described{said: saying(4)}, "v: v-0 v-1 v-2 of 4"},
		"nobody says it well":               {garbled, known{}, "v: v-0 v-1 v-2 of 3"},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, c.runs, c.pods...)
			together, err := s.Together(OwnerOf(s.Gangs, c.pods[0]))
			must.Succeed(t, err)
			var words []string
			for _, f := range together {
				words = append(words, describe(f))
			}
			if got := strings.Join(words, ", "); got != c.want {
				t.Errorf("runs: %q, want %q", got, c.want)
			}
		})
	}
}

func describe(f gangstate.RunningGang) string {
	text := f.Key.Name + ":"
	for _, one := range f.Running {
		text += " " + one.Pod.Name
	}
	return fmt.Sprint(text, " of ", f.Min)
}

// TestPodsByUID: an informer that has the index is used as it is, and no pod is found that does not exist.
func TestPodsByUID(t *testing.T) {
	pods := members("v", 1, 0, "n0")
	s := newStage(t, known{}, pods...)
	for uid, want := range map[types.UID]bool{"v-0": true, "v-1": false} {
		if pod, ok := s.Pod(uid); ok != want || ok && pod.UID != uid {
			t.Errorf("pod %s: %v, %v", uid, pod, ok)
		}
	}
}
