package gangs

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
	"github.com/lockstep-sh/lockstep/plugins/internal/hold"
)

// TestAskedWhileRegistering: watches read the registry while profiles are still being registered.
func TestAskedWhileRegistering(t *testing.T) {
	s := newStage(t, "one")
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for range 1000 {
			s.QueueOf("one", gang.Key{})
		}
	}()
	for i := range 100 {
		s.Register(named{name: fmt.Sprint("profile-", i)}, Settings{}, nil)
	}
	<-asked
	if got := len(s.all()); got != 101 {
		t.Errorf("%d profiles are registered, want 101", got)
	}
}

// TestAwaitsItsOwnVictims: the explanation of a pod in no gang is not the last as long as victims make room for the pod.
func TestAwaitsItsOwnVictims(t *testing.T) {
	s := newStage(t, testProfile)
	pod := st.MakePod().Name("p").UID("p").SchedulerName(testProfile).Obj()
	mine, left := hold.Holder{Profile: testProfile, Group: hold.SinglePod(pod.UID)}, 1
	s.all()[testProfile].victims = func(holder hold.Holder) int {
		if holder == mine {
			return left
		}
		return 0
	}
	if !s.mayChange(pod) {
		t.Error("it awaits nothing while its victim ends")
	}
	if left = 0; s.mayChange(pod) {
		t.Error("it still awaits something")
	}
}

func (s *stage) mayChange(pod *v1.Pod) bool {
	awaits, _ := s.Awaits(pod)
	return awaits
}

// named is a framework handle of which only the name is used.
type named struct {
	fwk.Handle
	name string
}

func (n named) ProfileName() string { return n.name }
