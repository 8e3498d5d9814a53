package gang

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

// nominate holds all of a node for a pod, as a member of its gang.
func (s *stage) nominate(pod *v1.Pod, node string) {
	s.holds.Nominate(hold.Hold{For: pod.UID, Holder: s.gangs.Holder("default/train"), Node: node, Request: resource.Vector{gpu: 8}})
}

// TestOwnNomination: what was nominated to a pod as a member of its gang does not keep it out
// when it is placed alone.
func TestOwnNomination(t *testing.T) {
	minimum := func(n string) func(int, *st.PodWrapper) {
		return func(_ int, pod *st.PodWrapper) { pod.Annotation(v1alpha1.MinAvailableAnnotation, n) }
	}
	for sentence, play := range map[string]func(t *testing.T, s *stage) *v1.Pod{
		"the others of its gang are gone": func(_ *testing.T, s *stage) *v1.Pod {
			members := makeMembers("train", 2, 8, minimum("1"))
			s.see(members...)
			s.nominate(members[0], "node-0000")
			s.podGone(s.ctx, members[1])
			return members[0]
		},
		"its gang runs, and its own binding has failed": func(t *testing.T, s *stage) *v1.Pod {
			members := makeMembers("train", 2, 8, nil)
			s.see(sample.Bound(members[1], "gone"), members[0])
			s.nominate(members[0], "node-0000")
			node := s.cycle(t, members[0])
			if node == "" {
				t.Fatal("it did not get its place")
			}
			s.Unreserve(s.ctx, framework.NewCycleState(), members[0], node)
			s.forget(t, sample.Bound(members[0], node))
			return members[0]
		},
		"it was planned with its gang, released, and its binding has failed": func(t *testing.T, s *stage) *v1.Pod {
			members := makeMembers("train", 2, 4, nil)
			s.see(members...)
			for _, pod := range members {
				s.nominate(pod, "node-0000")
			}
			for _, pod := range members {
				if s.cycle(t, pod) == "" {
					t.Fatal("it did not get its place")
				}
			}
			s.gangs.UpdateGangs(s.ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.BoundTo(members[1].UID, now) })
			s.Unreserve(s.ctx, framework.NewCycleState(), members[0], "node-0000")
			s.forget(t, sample.Bound(members[0], "node-0000"))
			return members[0]
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, makeNodes(1, 1))
			s.open()
			pod := play(t, s)
			if _, ok := s.holds.Nomination(pod.UID); !ok {
				t.Fatal("nothing is nominated to it")
			}
			if node := s.cycle(t, pod); node != "node-0000" {
				t.Errorf("it gets node %q", node)
			}
		})
	}
}

// forget makes the scheduler's cache forget a pod that was assumed.
func (s *stage) forget(t *testing.T, pod *v1.Pod) {
	t.Helper()
	must.Succeed(t, s.scheduler.Cache.ForgetPod(klog.FromContext(s.ctx), pod))
}
