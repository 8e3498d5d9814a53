package preemption

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// permitted has some pods that wait at Permit.
type permitted struct {
	evictions.InFlight
	pods map[types.UID]*sample.WaitingPod
}

func (p permitted) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	if waiting := p.pods[uid]; waiting != nil {
		return waiting
	}
	return nil
}

// TestMembersThatAreCalledOff: members that were on their way to their nodes wait in the queue again. Where the end of
// their gang was not begun otherwise, and they come to nodes after all, the gang is left alone.
func TestMembersThatAreCalledOff(t *testing.T) {
	onTheirWay := members("v", 2, 2, 10, 1, "")
	s := newStage(t, []*v1.Node{node("n0", 2, "r0")}, nil, onTheirWay[0], onTheirWay[1])
	waiting := map[types.UID]*sample.WaitingPod{onTheirWay[0].UID: {}, onTheirWay[1].UID: {}}
	s.evictor.InFlight = permitted{InFlight: s.fw, pods: waiting}
	v := s.change(t, nil, 2)
	for _, pod := range members("v", 2, 2, 10, 1, "n0") { // soon
		v.comes(pod)
	}
	d := s.demand(t, gangspec.Spec{}, members("p", 2, 2, 100, 1)...)
	u := loss{Candidate: evictions.Candidate{Of: evictions.OwnerOf(known{}, onTheirWay[0])}, victims: onTheirWay}
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	e := s.execution(d, &found{})
	if err := e.evictWhole(ctx, e.f.preemption, u); err != nil {
		t.Error(err)
	}
	for uid, pod := range waiting {
		if n := pod.CalledOff.Load(); n != 1 {
			t.Errorf("pod %s was called off %d times, want once", uid, n)
		}
	}
	if got := s.left(t); got != "v-0 v-1" {
		t.Errorf("left %q, want all", got)
	}
	if n := s.Underway.Victims(s.holder(d)); n > 0 {
		t.Errorf("%d victims are waited for", n)
	}
}

func succeeded(pods []*v1.Pod) []*v1.Pod {
	for _, pod := range pods {
		pod.Status.Phase = v1.PodSucceeded
	}
	return pods
}

// TestGangThatSucceeded: where all members that were chosen have run to success by the time of the eviction, one that
// came to run beside them since is not evicted.
func TestGangThatSucceeded(t *testing.T) {
	chosen, came := succeeded(members("v", 2, 2, 10, 1, "n0")), member("v", 2, 2, 10, 1, "n1")
	preemptor := members("p", 1, 1, 100, 1)
	s := newStage(t, []*v1.Node{node("n0", 2, "r0")}, nil, preemptor[0], chosen[0], chosen[1], came)
	s.change(t, append(slices.Clone(chosen), came), 2)
	d := s.demand(t, gangspec.Spec{}, preemptor...)
	f := &found{plan: &planner.Plan{Outcome: gangstate.Outcome{Nodes: map[types.UID]string{preemptor[0].UID: "n0"}}}, victims: chosen}
	s.promise(d, f)
	if err := s.execution(d, f).evictWhole(s.ctx, f.preemption, loss{Candidate: evictions.Candidate{Of: evictions.OwnerOf(known{}, came)}, victims: chosen}); err != nil {
		t.Error(err)
	}
	if got := s.left(t); got != "v-0 v-1 v-2" {
		t.Errorf("left %q, want all", got)
	}
}

// TestMembersThatGaveBack: members that were on their way to their nodes when they were chosen, and wait again by the
// time of the eviction, are left alone, and so is a member that came to another node.
func TestMembersThatGaveBack(t *testing.T) {
	for sentence, c := range map[string]struct {
		chosen []*v1.Pod // as the search saw them
		now    []*v1.Pod // as the API server has them
		left   string
	}{
		"a gang waits again":        {members("v", 2, 2, 10, 1, "n0"), members("v", 2, 2, 10, 1), "v-0 v-1"},
		"surplus waits again":       {members("v", 2, 1, 10, 1, "n0"), append(members("v", 1, 1, 10, 1), member("v", 1, 1, 10, 1, "n0")), "v-0 v-1"},
		"single pods wait again":    {members("v", 2, 0, 10, 1, "n0"), members("v", 2, 0, 10, 1), "v-0 v-1"},
		"single pods run elsewhere": {members("v", 2, 0, 10, 1, "n0"), members("v", 2, 0, 10, 1, "n1"), "v-0 v-1"},
		"single pods run there":     {members("v", 2, 0, 10, 1, "n0"), members("v", 2, 0, 10, 1, "n0"), "v-1"},
		"a gang has succeeded":      {members("v", 2, 2, 10, 1, "n0"), succeeded(members("v", 2, 2, 10, 1, "n0")), "v-0 v-1"},
		"single pods have, too":     {members("v", 2, 0, 10, 1, "n0"), succeeded(members("v", 2, 0, 10, 1, "n0")), "v-0 v-1"},
		"of a gang one has come":    {members("v", 2, 2, 10, 1, "n0"), append(members("v", 1, 2, 10, 1, "n0"), member("v", 1, 2, 10, 1, "")), "v-1"},
	} {
		t.Run(sentence, func(t *testing.T) {
			preemptor := members("p", 1, 1, 100, 1)
			objects := objectsOf(preemptor[:1], c.now)
			s := newStage(t, []*v1.Node{node("n0", 2, "r0")}, c.chosen, objects...)
			v := s.change(t, nil, 0)
			for _, pod := range c.chosen {
				v.comes(pod)
			}
			v.running.Min = 2
			if c.chosen[0].Annotations[v1alpha1.MinAvailableAnnotation] == "1" {
				v.running.Min = 1
			}
			d := s.demand(t, gangspec.Spec{}, preemptor...)
			f := s.decide(t, d)
			for _, pod := range c.now {
				if pod.Spec.NodeName == "" {
					v.ends(pod.Name)
				}
			}
			ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
			defer cancel()
			for _, err := range s.execution(d, f).evictAll(ctx) {
				t.Error(err)
			}
			if got := s.left(t); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
			if n := s.Underway.Victims(s.holder(d)); c.left == "v-0 v-1" && n > 0 {
				t.Errorf("%d victims are waited for", n)
			}
			if marked := s.markedPods(t); len(marked) > 0 {
				t.Errorf("%q are marked and run on", marked)
			}
		})
	}
}

// TestTimeIsUp: victims whose turn does not come are not waited for.
func TestTimeIsUp(t *testing.T) {
	victims := members("v", 2, 2, 10, 1, "n0")
	s := newStage(t, []*v1.Node{node("n0", 2, "r0")}, victims)
	d := s.demand(t, gangspec.Spec{}, members("p", 2, 2, 100, 1)...)
	f := s.decide(t, d)
	over, cancel := context.WithCancel(s.ctx)
	cancel()
	s.execution(d, f).evictAll(over)
	if n := s.Underway.Victims(s.holder(d)); n > 0 {
		t.Errorf("%d victims are waited for, want none", n)
	}
}

// TestTimeIsUpForThoseWhoCameLate: nor are members of a gang that ends whole waited for that came later, and so were
// not chosen.
func TestTimeIsUpForThoseWhoCameLate(t *testing.T) {
	for sentence, begun := range map[string]bool{"before the first is evicted": false, "after it": true} {
		t.Run(sentence, func(t *testing.T) {
			victims, late := members("v", 2, 2, 10, 1, "n0"), member("v", 2, 2, 10, 1, "n1")
			preemptor := members("p", 2, 2, 100, 1)
			s := newStage(t, []*v1.Node{node("n0", 2, "r0")}, victims, victims[0], victims[1], late, preemptor[0], preemptor[1])
			v := s.change(t, victims, 2)
			d := s.demand(t, gangspec.Spec{}, preemptor...)
			f := s.decide(t, d)
			v.running.Min = 3 // so that two of them are a rest
			ctx, cancel := context.WithCancel(s.ctx)
			defer cancel()
			if begun {
				server{deletes: func(string, metav1.DeleteOptions) error {
					if ctx.Err() == nil {
						v.comes(late)
					}
					cancel()
					return nil
				}}.stand(s.fw.ClientSet().(*fake.Clientset))
			} else {
				v.comes(late)
				cancel()
			}
			e := s.execution(d, f)
			err := e.evictWhole(ctx, f.preemption, loss{Candidate: evictions.Candidate{Of: evictions.OwnerOf(known{}, late)}, victims: victims})
			any := slices.ContainsFunc(victims, func(pod *v1.Pod) bool { return e.hasEvicted(pod.UID) })
			if begun != (err != nil) || begun != any {
				t.Errorf("evicted any: %v, %v", any, err)
			}
			for _, uid := range s.Underway.VictimsOf(s.holder(d)) {
				if !e.hasEvicted(uid) {
					t.Errorf("%s is waited for", uid)
				}
			}
		})
	}
}
