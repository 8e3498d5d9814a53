package gang

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
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
