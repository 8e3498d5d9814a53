package gang

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// TestGangOfOneThatCaresAboutPods: the pod that it waits for causes a retry.
func TestGangOfOneThatCaresAboutPods(t *testing.T) {
	near := func(_ int, pod *st.PodWrapper) {
		pod.PodAffinityIn("app", v1.LabelTopologyZone, []string{"data"}, st.PodAffinityWithRequiredReq)
	}
	for sentence, c := range map[string]struct {
		change func(int, *st.PodWrapper)
		want   bool
	}{
		"one with pod affinity":    {change: near, want: true},
		"one that does not matter": {change: func(_ int, pod *st.PodWrapper) { pod.NodeSelector(map[string]string{"no": "node"}) }},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, makeNodes(1, 1))
			pods := makeMembers("train", 1, 1, c.change)
			if at, failed := s.run(t, pods); len(at) > 0 || failed != 1 {
				t.Fatalf("on %v after %d cycles", at, failed)
			}
			s.room.RecordChange(turns.PodsMoved)
			s.ask()
			if woken := s.PreEnqueue(s.ctx, pods[0]).IsSuccess(); woken != c.want {
				t.Errorf("a pod comes to a node, and it is tried again: %t", woken)
			}
		})
	}
}

// TestGangsOfOneThatAreAlike: when something changes, one attempt stands for all gangs that ask for
// the same, but not where room is made for it, nor for a gang that room is kept for.
func TestGangsOfOneThatAreAlike(t *testing.T) {
	nodes := makeNodes(1, 1)
	s := newStage(t, nodes, fill(nodes, 0)...)
	var pods []*v1.Pod
	for i := range 20 {
		pods = append(pods, makeMembers(fmt.Sprintf("g%02d", i), 1, 1, nil)...)
	}
	if at, failed := s.run(t, pods); len(at) > 0 || failed != len(pods) {
		t.Fatalf("on %v after %d cycles", at, failed)
	}
	first := hold.SinglePod(pods[0].UID)
	for _, step := range []struct {
		sentence string
		change   func()
		want     int
	}{
		{"something ends", s.registry.Changed, 1},
		{"room is made for the first, and so the second may find some", func() { s.victims = victims{s.gangs.Holder(first): 1} }, 1},
		{"something ends, and room is kept for the last", func() {
			s.victims = nil
			last := pods[len(pods)-1].UID
			s.holds.Nominate(hold.Hold{For: last, Holder: s.gangs.Holder(hold.SinglePod(last)), Node: "node-0000", Request: resource.Vector{gpu: 1}})
			s.registry.Changed()
		}, 2},
	} {
		step.change()
		if tried := s.retried(t, pods); tried != step.want {
			t.Errorf("%s: %d attempts, want %d", step.sentence, tried, step.want)
		}
	}
}

// retried tries all due gangs again, and returns how many were tried.
func (s *stage) retried(t *testing.T, pods []*v1.Pod) (tried int) {
	t.Helper()
	for {
		s.ask()
		i := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return s.PreEnqueue(s.ctx, pod).IsSuccess() })
		if i < 0 {
			return tried
		}
		s.cycle(t, pods[i])
		tried++
	}
}

// TestLastOfAGroup: what a GangGroup still lacks is planned with the group, also if that is one member of a gang of
// one.
func TestLastOfAGroup(t *testing.T) {
	nodes := makeNodes(2, 2)
	gangs := func(gpus int, change func(*st.PodWrapper)) (a, b []*v1.Pod) {
		named := func(name string, gpus int) []*v1.Pod {
			return makeMembers(name, 1, gpus, func(_ int, pod *st.PodWrapper) {
				pod.Annotation(v1alpha1.GroupsAnnotation, `["default/a","default/b"]`)
				change(pod)
			})
		}
		return named("a", 4), named("b", gpus)
	}
	for sentence, c := range map[string]struct {
		left int // GPUs beside the other gang in its rack
		want map[types.UID]string
	}{
		"it goes to the rack of the others": {left: 4, want: map[types.UID]string{"b-0000": nodes[0].Name}},
		"or nowhere":                        {want: map[types.UID]string{}},
	} {
		t.Run(sentence, func(t *testing.T) {
			a, b := gangs(4, func(pod *st.PodWrapper) {
				pod.Annotation(v1alpha1.RequiredTopologyAnnotation, rack)
				pod.Annotation(v1alpha1.TopologyScopeAnnotation, v1alpha1.TopologyScopeGroup)
			})
			a[0] = sample.Bound(a[0], nodes[0].Name)
			s := newStage(t, nodes, append(fill(nodes[:1], 4+c.left), a[0])...)
			s.open()
			s.see(a...)
			at, _ := s.run(t, b)
			if diff := cmp.Diff(c.want, at); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("another gang gives up its place for it", func(t *testing.T) {
		filler := fill(nodes, 4)
		filler[0] = fill(nodes[:1], 0)[0]
		s := newStage(t, nodes, filler...)
		a, b := gangs(8, func(pod *st.PodWrapper) { pod.Annotation(v1alpha1.ModeAnnotation, v1alpha1.ModeNonStrict) })
		pods := append(a, b...)
		if at, _ := s.run(t, pods); len(at) > 0 || s.holds.Count(hold.Plan) != 1 {
			t.Fatalf("on %v, %d places held; want that of one", at, s.holds.Count(hold.Plan))
		}
		for _, pod := range filler {
			must.Succeed(t, s.scheduler.Cache.RemovePod(klog.FromContext(s.ctx), pod))
		}
		must.Succeed(t, s.scheduler.Cache.AddPod(klog.FromContext(s.ctx), fill(nodes[:1], 4)[0]))
		if at, _ := s.run(t, pods); len(at) != len(pods) {
			t.Errorf("held on %v, want both", at)
		}
	})
}
