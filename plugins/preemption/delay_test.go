package preemption

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// TestDelayOfASinglePod: a pod in no gang evicts no pod before its preemption delay has passed since it first did not
// fit.
func TestDelayOfASinglePod(t *testing.T) {
	for sentence, c := range map[string]struct {
		delay  string
		ofGang bool // it is a member of a gang that runs
		first  time.Duration
		want   string // the message; empty where it preempts
	}{
		"without a delay it preempts at once":         {},
		"with one it waits":                           {delay: "1h", want: "preemption: " + msgDelay},
		"for a part of it, too":                       {delay: "1h", first: 59 * time.Minute, want: "preemption: " + msgDelay},
		"not longer":                                  {delay: "1h", first: time.Hour},
		"a bad value is none":                         {delay: "soon"},
		"a member that its gang lacks does not delay": {delay: "1h", ofGang: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			min := 0
			if c.ofGang {
				min = 1
			}
			preemptor := member("p", 0, min, 100, 1, "")
			if c.delay != "" {
				if preemptor.Annotations == nil {
					preemptor.Annotations = map[string]string{}
				}
				preemptor.Annotations[v1alpha1.PreemptionDelayAnnotation] = c.delay
			}
			victims := members("v", 1, 0, 10, 1, "n0")
			s := newStage(t, []*v1.Node{node("n0", 1, "r0")}, victims, preemptor, victims[0])
			if c.first > 0 {
				s.firstMisses.Store(preemptor.UID, s.clock.Now().Add(-c.first))
			}
			_, status := s.PostFilter(s.ctx, framework.NewCycleState(), preemptor, nil)
			if message := status.Message(); message != c.want || status.IsSuccess() != (c.want == "") {
				t.Errorf("it is told %q, want %q", message, c.want)
			}
		})
	}
}

// TestDelayBeginsOnce: the delay counts from when the pod first did not fit until it is bound or gone.
func TestDelayBeginsOnce(t *testing.T) {
	preemptor := member("p", 0, 0, 100, 1, "")
	preemptor.Annotations = map[string]string{v1alpha1.PreemptionDelayAnnotation: "1h"}
	s := newStage(t, nil, nil, preemptor)
	first := s.singleAttempt(preemptor).Missed
	if again := s.singleAttempt(preemptor).Missed; first.IsZero() || !again.Equal(first) {
		t.Errorf("it first did not fit at %v, then at %v", first, again)
	}
	s.podDeleted(preemptor)
	if _, known := s.firstMisses.Load(preemptor.UID); known {
		t.Error("it is remembered when it is gone")
	}
	onNode := preemptor.DeepCopy()
	onNode.Spec.NodeName = "n0"
	s.singleAttempt(preemptor)
	s.podChanged(preemptor, onNode)
	if _, known := s.firstMisses.Load(preemptor.UID); known {
		t.Error("it is remembered when it is bound")
	}
	unborn := member("q", 0, 0, 100, 1, "")
	unborn.Annotations = preemptor.Annotations
	a := s.singleAttempt(unborn)
	if _, known := s.firstMisses.Load(unborn.UID); known || a.PreemptionDelay != 0 {
		t.Error("a pod that the API server does not have is remembered")
	}
}
