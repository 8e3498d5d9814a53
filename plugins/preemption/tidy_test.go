package preemption

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

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
			if err := wait.PollUntilContextTimeout(s.ctx, time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
				return s.Holds.Count(hold.Nomination) == len(pods), nil
			}); err != nil {
				t.Fatal(err)
			}
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
