package preemption

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// gangsOf is a profile that reports the same of all gangs.
type gangsOf struct {
	known
	want                       gangstate.PlacementRequest
	decided, placing, starting bool
}

func (g gangsOf) Wants(*v1.Pod) (gangstate.PlacementRequest, bool) { return g.want, !g.decided }
func (g gangsOf) Placing(holder hold.Holder) bool {
	return g.placing && holder == hold.Holder{Profile: profile, Group: "default/g"}
}
func (g gangsOf) Synced() bool { return !g.starting }

// TestGiveBack: nominations end of which a gang has no use, also those that are known only from the status of its
// members. Others stay.
func TestGiveBack(t *testing.T) {
	recalled, adopted := []string{"pod:g-0", "pod:g-1"}, []string{"default/g", "default/g"}
	ofGang := gangstate.PlacementRequest{Job: "default/g"}
	for sentence, c := range map[string]struct {
		min     int // 0 for pods in no gang
		gangs   gangsOf
		holders []string
		queues  Queues
		ends    bool
	}{
		"a gang is being placed":                          {min: 3, gangs: gangsOf{want: ofGang, placing: true}, holders: adopted},
		"its queue has room for it":                       {min: 3, gangs: gangsOf{want: ofGang, placing: true}, holders: adopted, queues: queuesFor("q")},
		"others have taken what its queue may use":        {min: 3, gangs: gangsOf{want: ofGang, placing: true}, holders: adopted, queues: fullQueues{}, ends: true},
		"it lacks a member":                               {min: 3, gangs: gangsOf{want: ofGang}, holders: adopted, ends: true},
		"its nominations were recalled, and it is placed": {min: 3, gangs: gangsOf{want: ofGang, placing: true}, holders: recalled},
		"and it lacks a member":                           {min: 3, gangs: gangsOf{want: ofGang}, holders: recalled, ends: true},
		"nobody knows yet whether it does":                {min: 3, gangs: gangsOf{want: ofGang, starting: true}, holders: recalled},
		"it runs, and lacks members":                      {min: 3, gangs: gangsOf{want: gangstate.PlacementRequest{Job: "default/g", Alone: true}}, holders: recalled},
		"it runs, and lacks none":                         {min: 3, gangs: gangsOf{want: gangstate.PlacementRequest{Job: "default/g", Alone: true, Ready: true}}, holders: recalled, ends: true},
		"where members go is decided":                     {min: 3, gangs: gangsOf{decided: true}, holders: recalled},
		"somebody else places the gang":                   {min: 3, holders: recalled},
		"pods in no gang":                                 {holders: recalled},
	} {
		t.Run(sentence, func(t *testing.T) {
			pods := members("g", 2, c.min, 10, 1, "")
			var objects []runtime.Object
			for _, pod := range pods {
				pod.Status.NominatedNodeName = "n0"
				objects = append(objects, pod)
			}
			s := newStage(t, nil, nil, objects...)
			s.know(c.gangs)
			if c.queues != nil {
				s.Queues = c.queues
			}
			await.Until(t, "all nominations are held", func() bool { return s.Holds.Count(hold.Nomination) == len(pods) })
			for i, pod := range pods {
				s.Holds.Adopt(hold.Holder{Profile: profile, Group: c.holders[i]}, []types.UID{pod.UID})
			}
			now := time.Now()
			for _, pass := range []struct {
				after time.Duration
				ends  bool
			}{{0, false}, {idleFor - time.Second, false}, {idleFor, c.ends}} {
				s.dropIdleNominations(now.Add(pass.after))
				if n := s.Holds.Count(hold.Nomination); n != len(pods) && !pass.ends || n != 0 && pass.ends {
					t.Errorf("after %v there are %d nominations; they have to end: %v", pass.after, n, pass.ends)
				}
			}
		})
	}
}

// running is a profile with the gangs that its pods make.
type running struct {
	known
	gangs *gangstate.Gangs
}

func (r running) Running(_ string, key gangspec.Key) []gangstate.RunningGang {
	return r.gangs.RunningGangs(key)
}
func (r running) Wants(pod *v1.Pod) (gangstate.PlacementRequest, bool) { return r.gangs.Wants(pod) }
func (r running) Placing(holder hold.Holder) bool                      { return r.gangs.Placing(holder.Group) }

// gangsRunning returns the gangs of pods, of which those on nodes have been there for an hour.
func gangsRunning(pods ...*v1.Pod) running {
	now := time.Now()
	r := running{gangs: gangstate.New(gangspec.Defaults{WaitTime: time.Minute}, gangstate.Backoff{Initial: time.Millisecond, Max: time.Second})}
	for _, pod := range pods {
		pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Second))
		if pod.Spec.NodeName != "" {
			pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
			pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: pod.CreationTimestamp})
		}
		r.gangs.ObservePod(pod, now)
	}
	r.gangs.Open(now)
	return r
}

// TestReplacementKeepsItsRoom: what is held for the replacement of a member stays while its victims end, and after that
// while its gang lacks it; what is held for a member beyond the minimum does not.
func TestReplacementKeepsItsRoom(t *testing.T) {
	for sentence, c := range map[string]struct {
		min    int
		ending bool
		ends   bool
	}{
		"the gang lacks it, and victims are ending": {min: 4, ending: true},
		"the gang lacks it":                         {min: 4},
		"the gang is whole, and victims are ending": {min: 3, ending: true},
		"the gang is whole":                         {min: 3, ends: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			waiting, victim := member("g", 3, c.min, 100, 1, ""), member("v", 0, 0, 10, 1, "n0")
			pods := append(members("g", 3, c.min, 100, 1, "n1"), waiting)
			s := newStage(t, nil, nil, victim, waiting)
			s.know(gangsRunning(pods...))
			holder := hold.Holder{Profile: profile, Group: hold.SinglePod(waiting.UID)}
			s.Holds.Nominate(hold.Hold{For: waiting.UID, Holder: holder, Node: "n0", Priority: 100, Claim: s.Holds.NewClaim()})
			if c.ending {
				s.Underway.AddVictims(s.Gangs, &evictions.Preemption{Holder: holder}, []*v1.Pod{victim})
			}
			now := time.Now()
			for _, after := range []time.Duration{0, idleFor, 10 * idleFor} {
				s.dropIdleNominations(now.Add(after))
			}
			if ended := s.Holds.Count(hold.Nomination) == 0; ended != c.ends {
				t.Errorf("its room was given back: %t", ended)
			}
		})
	}
}

// TestLateNominations: a status is heard of late. Nothing is promised to a pod that by then is bound, ends or is gone.
func TestLateNominations(t *testing.T) {
	for sentence, c := range map[string]struct {
		now  func(*v1.Pod) *v1.Pod
		want bool
	}{
		"it waits": {func(pod *v1.Pod) *v1.Pod { return pod }, true},
		"it is bound": {func(pod *v1.Pod) *v1.Pod {
			pod.Spec.NodeName = "n0"
			return pod
		}, false},
		"it ends": {func(pod *v1.Pod) *v1.Pod {
			pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/still"}
			return pod
		}, false},
		"it is gone":       {func(*v1.Pod) *v1.Pod { return nil }, false},
		"it is made again": {func(pod *v1.Pod) *v1.Pod { pod.UID = "another"; return pod }, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := member("p", 0, 0, 100, 1, "")
			pod.Spec.SchedulerName = profile
			nominated := pod.DeepCopy()
			nominated.Status.NominatedNodeName = "n0"
			var objects []runtime.Object
			if now := c.now(pod.DeepCopy()); now != nil {
				objects = append(objects, now)
			}
			s := newStage(t, nil, nil, objects...)
			s.podChanged(pod, nominated)
			if _, got := s.Holds.Nomination(pod.UID); got != c.want {
				t.Errorf("a node is held for it: %t, want %t", got, c.want)
			}
		})
	}
}
