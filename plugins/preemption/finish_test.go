package preemption

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
	"github.com/lockstep-sh/lockstep/test/await"
)

// TestFinish: what an interrupted eviction has begun is finished where a gang is left in part, and
// nowhere else.
func TestFinish(t *testing.T) {
	marked := func(pods []*v1.Pod) []*v1.Pod {
		for _, pod := range pods {
			pod.Status.Conditions = []v1.PodCondition{{
				Type: v1alpha1.PodEvicting, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler, Message: profile,
			}}
		}
		return pods
	}
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		min  int
		keep bool // broken gangs are left alone
		left string
	}{
		"a gang of which all are marked and none is gone runs on":      {pods: marked(members("g", 3, 3, 10, 1, "n0")), min: 3, left: "g-0 g-1 g-2"},
		"one that has lost members goes whole":                         {pods: marked(members("g", 2, 3, 10, 1, "n0")), min: 3},
		"also those of it that were not marked yet":                    {pods: slices.Concat(marked(members("g", 1, 3, 10, 1, "n0")), members("g", 2, 3, 10, 1, "n0")[1:]), min: 3},
		"but for what was begun nobody goes where they are left alone": {pods: slices.Concat(marked(members("g", 1, 3, 10, 1, "n0")), members("g", 2, 3, 10, 1, "n0")[1:]), min: 3, keep: true, left: "g-1"},
		"a pod in no gang stays: it is chosen again if it has to go":   {pods: marked(members("single", 1, 0, 10, 1, "n0")), min: 1, left: "single-0"},
		"nobody goes who is not marked":                                {pods: members("g", 2, 3, 10, 1, "n0"), min: 3, left: "g-0 g-1"},
	} {
		t.Run(sentence, func(t *testing.T) {
			var objects []runtime.Object
			key := gang.Key{Namespace: "default", Name: "g"}
			f := gang.Footprint{Key: key, Min: c.min}
			for _, pod := range c.pods {
				objects = append(objects, pod)
				f.Running = append(f.Running, gang.Placed{Pod: pod, Node: pod.Spec.NodeName})
			}
			s := newStage(t, nil, nil, objects...)
			s.Roster.Register(profile, known{key: {f}})
			s.args.EvictBrokenGangs = !c.keep
			for _, pod := range c.pods {
				s.unfinished.note(pod.UID, s.marked(pod), time.Now()) // if the informer has not yet
			}
			s.finish(s.ctx, time.Now().Add(time.Hour))
			list, err := s.handle.ClientSet().CoreV1().Pods("").List(s.ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
		})
	}
}

// gangsOf is a profile that says of all gangs the same.
type gangsOf struct {
	known
	want                       gang.Want
	decided, placing, starting bool
}

func (g gangsOf) Wants(*v1.Pod) (gang.Want, bool) { return g.want, !g.decided }
func (g gangsOf) Placing(holder hold.Holder) bool {
	return g.placing && holder == hold.Holder{Profile: profile, Group: "default/g"}
}
func (g gangsOf) Synced() bool { return !g.starting }

// TestGiveBack: nominations end of which a gang has no use, also those that nobody knows but from the status of its
// members. Others stay.
func TestGiveBack(t *testing.T) {
	recalled, adopted := []string{"pod:g-0", "pod:g-1"}, []string{"default/g", "default/g"}
	ofGang := gang.Want{Job: "default/g"}
	for sentence, c := range map[string]struct {
		min     int // 0 for pods in no gang
		gangs   gangsOf
		holders []string
		ends    bool
	}{
		"a gang is being placed":                          {min: 3, gangs: gangsOf{want: ofGang, placing: true}, holders: adopted},
		"it lacks a member":                               {min: 3, gangs: gangsOf{want: ofGang}, holders: adopted, ends: true},
		"its nominations were recalled, and it is placed": {min: 3, gangs: gangsOf{want: ofGang, placing: true}, holders: recalled},
		"and it lacks a member":                           {min: 3, gangs: gangsOf{want: ofGang}, holders: recalled, ends: true},
		"nobody knows yet whether it does":                {min: 3, gangs: gangsOf{want: ofGang, starting: true}, holders: recalled},
		"it runs, and members may go alone":               {min: 3, gangs: gangsOf{want: gang.Want{Job: "default/g", Ready: true}}, holders: recalled},
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
			s.Roster.Register(profile, c.gangs)
			await.Until(t, "all nominations are held", func() bool { return s.Holds.Count(hold.Nomination) == len(pods) })
			for i, pod := range pods {
				s.Holds.Adopt(hold.Holder{Profile: profile, Group: c.holders[i]}, []types.UID{pod.UID})
			}
			now := time.Now()
			for _, pass := range []struct {
				after time.Duration
				ends  bool
			}{{0, false}, {idleFor - time.Second, false}, {idleFor, c.ends}} {
				s.giveBack(now.Add(pass.after))
				if n := s.Holds.Count(hold.Nomination); n != len(pods) && !pass.ends || n != 0 && pass.ends {
					t.Errorf("after %v there are %d nominations; they have to end: %v", pass.after, n, pass.ends)
				}
			}
		})
	}
}
