package gang

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// TestGangOfOneThatCaresAboutPods: the pod that it waits for wakes it.
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
			s.input(s.ctx, func(g *gang.Gangs, now time.Time) gang.Effects {
				g.PodsMoved()
				return g.Retry(now.Add(time.Second), elsewhere{s.Gang}) // the pause is over
			})
			if woken := s.PreEnqueue(s.ctx, pods[0]).IsSuccess(); woken != c.want {
				t.Errorf("a pod comes to a node, and it is tried again: %t", woken)
			}
		})
	}
}
