package gang

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// hold reserves a member on a node and permits it, as a cycle that follows the
// plan does.
func (s *stage) hold(t *testing.T, pod *v1.Pod, node string) *fwk.Status {
	t.Helper()
	state := framework.NewCycleState()
	if status := s.Reserve(s.ctx, state, pod, node); !status.IsSuccess() {
		t.Fatal(status)
	}
	status, _ := s.Permit(s.ctx, state, pod, node)
	return status
}

// bind lets a member go to the barrier and returns what becomes of it. Where
// ended, the cycle is given up while it waits.
func (s *stage) bind(t *testing.T, pod *v1.Pod, ended bool) *fwk.Status {
	t.Helper()
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	if ended {
		cancel(errEnded)
	}
	return s.Bind(ctx, framework.NewCycleState(), pod, "node-0000")
}

var errEnded = errors.New("the cycle is over")

// waits reports whether a member would wait at the barrier.
func (s *stage) waits(pod *v1.Pod) bool {
	d := s.barrier.get(pod.UID)
	return d != nil && !isClosed(d.opened)
}

func TestBarrier(t *testing.T) {
	for sentence, c := range map[string]struct {
		do func(t *testing.T, s *stage, members []*v1.Pod)
		// what becomes of the first of two members
		waits bool
		code  fwk.Code
	}{
		"a member waits for the others": {
			do:    func(t *testing.T, s *stage, members []*v1.Pod) { s.hold(t, members[0], "node-0000") },
			waits: true, code: fwk.Error, // its cycle is given up
		},
		"the last one lets all go": {
			do: func(t *testing.T, s *stage, members []*v1.Pod) {
				s.hold(t, members[0], "node-0000")
				s.hold(t, members[1], "node-0000")
			},
			code: fwk.Skip,
		},
		"one that fails turns the others back": {
			do: func(t *testing.T, s *stage, members []*v1.Pod) {
				s.hold(t, members[0], "node-0000")
				s.podGone(s.ctx, members[1])
			},
			code: fwk.Unschedulable,
		},
		"one that is deleted is turned back": {
			do: func(t *testing.T, s *stage, members []*v1.Pod) {
				s.hold(t, members[0], "node-0000")
				s.podGone(s.ctx, members[0])
			},
			code: fwk.Unschedulable,
		},
		"one that was deleted in its cycle does not wait for ever: its binding fails": {
			do: func(t *testing.T, s *stage, members []*v1.Pod) {
				s.podGone(s.ctx, members[0])
				s.hold(t, members[0], "node-0000")
			},
			code: fwk.Skip,
		},
		"one that was never reserved is none of its business": {
			do:   func(*testing.T, *stage, []*v1.Pod) {},
			code: fwk.Skip,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, makeNodes(2, 1))
			s.open()
			members := makeMembers("train", 2, 1, nil)
			s.see(members...)
			for _, pod := range members { // plan
				if _, status := s.PreFilter(s.ctx, framework.NewCycleState(), pod, nil); !status.IsSuccess() {
					t.Fatal(status)
				}
			}
			c.do(t, s, members)
			if s.waits(members[0]) != c.waits {
				t.Fatalf("it waits: %v, want %v", s.waits(members[0]), c.waits)
			}
			status := s.bind(t, members[0], c.waits)
			if status.Code() != c.code {
				t.Errorf("at the barrier: %v, want %v", status, c.code)
			}
			if c.waits && !errors.Is(status.AsError(), errEnded) {
				t.Errorf("at the barrier: %v, want why its cycle ended", status)
			}
			if c.code == fwk.Unschedulable {
				fit := &framework.FitError{}
				if !errors.As(status.AsError(), &fit) || !fit.Diagnosis.UnschedulablePlugins.Has(Name) {
					t.Errorf("at the barrier: %v, want one that did not fit, not an error", status.AsError())
				}
			}
		})
	}
}

// TestPreemptedAtTheBarrier: kube-scheduler calls off the binding of a pod that is to
// make room before it runs, if it knows of the binding, and deletes the pod if not.
func TestPreemptedAtTheBarrier(t *testing.T) {
	s := newStage(t, makeNodes(2, 1))
	s.open()
	members := makeMembers("train", 2, 1, nil)
	s.see(members...)
	if _, status := s.PreFilter(s.ctx, framework.NewCycleState(), members[0], nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	s.hold(t, members[0], "node-0000")
	done := make(chan *fwk.Status)
	go func() { done <- s.Bind(s.ctx, framework.NewCycleState(), members[0], "node-0000") }()
	await.Until(t, "its binding can be called off", func() bool {
		select {
		case status := <-done:
			t.Fatalf("it does not wait: %v", status)
		default:
		}
		return s.fw.GetPodInPreBind(members[0].UID) != nil
	})
	if !s.fw.GetPodInPreBind(members[0].UID).CancelPod("preempted") {
		t.Fatal("its binding cannot be called off")
	}
	if status := await.Value(t, "Bind to return", done); status.Code() != fwk.Unschedulable || s.fw.GetPodInPreBind(members[0].UID) != nil {
		t.Errorf("at the barrier: %v, want that it has to look for another place", status)
	}
	s.Unreserve(s.ctx, framework.NewCycleState(), members[0], "node-0000")
	if !s.holds.Empty() {
		t.Error("the place that the plan has for the other member is kept")
	}
}
