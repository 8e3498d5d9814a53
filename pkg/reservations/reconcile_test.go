package reservations

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/reservations/reservepods"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// seeking makes a registry that leads, with a profile, and returns the API server that has a Reservation.
func seeking(t *testing.T, r *v1alpha1.Reservation, p profile, s *stage) *server {
	t.Helper()
	api := &server{object: r}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.ReservationResource: "ReservationList"})
	client.PrependReactor("*", "*", api.react)
	s.client, s.statuses = fake.NewClientset(), client.Resource(v1alpha1.ReservationResource)
	s.leading = await.Closed()
	s.profiles["lockstep-scheduler"] = p
	s.Update(r)
	t.Cleanup(s.work.ShutDown)
	return api
}

func (s *stage) lookNow(name string) {
	s.Helper()
	must.Succeed(s, s.reconcile(s.Context(), name))
}

func (s *server) scheduled() (reason, message string) {
	if c := meta.FindStatusCondition(s.object.Status.Conditions, v1alpha1.ReservationScheduled); c != nil {
		return c.Reason, c.Message
	}
	return "", ""
}

var yes = profile{gangs: func() bool { return true }}

// TestReservePodsAreThere: what lacks a place has a reserve pod, whatever became of the earlier ones.
func TestReservePodsAreThere(t *testing.T) {
	s := newStage(t)
	r := s.make("r", func(r *v1alpha1.Reservation) { r.Spec.Replicas = 2 })
	left := reservePods(s.make("r", func(r *v1alpha1.Reservation) { r.UID = "of-one-before" }), templateOf(r), []int32{0}, 1)[0]
	must.Succeed(t, s.store.Add(left))
	seeking(t, r, yes, s)
	there := func() (uids []string) {
		for index := range 2 {
			if pod, err := s.store.Get("default", reservepods.PodName("r", index)); err == nil {
				uids = append(uids, string(pod.UID))
			}
		}
		return uids
	}
	s.lookNow("r")
	first := there()
	if len(first) != 2 || !strings.HasPrefix(first[0], "uid-r/") {
		t.Fatalf("there are %v", first)
	}
	s.lookNow("r")
	if again := there(); again[0] != first[0] || again[1] != first[1] {
		t.Errorf("there are %v, and were %v, though nothing has changed", again, first)
	}
	must.Succeed(t, s.store.Delete("default", reservepods.PodName("r", 1), nil))
	s.lookNow("r")
	if again := there(); len(again) != 2 {
		t.Errorf("there are %v after somebody took one", again)
	}
	placed := s.make("r", on("a", "b"))
	s.Update(placed) // by another scheduler
	s.lookNow("r")
	if again := there(); len(again) != 0 {
		t.Errorf("there are %v though all has its place", again)
	}
}

// TestUsedThoughNobodySaysSo: a placement that was used once is not held again if its user is gone before a controller
// has seen it; the scheduler writes that it was used itself then.
func TestUsedThoughNobodySaysSo(t *testing.T) {
	s := newStage(t)
	r := s.make("r", on("a", "b"))
	api := seeking(t, r, yes, s)
	pod := bound(owner("first", "1"), "a", r, 0)
	s.userChanged(pod)
	s.podEnded(pod)
	s.Update(s.make("r", on("a", "b")))
	if got := s.held(); got != "b: 4" {
		t.Errorf("held %q", got)
	}
	api.object = s.entries["r"].object
	s.clock.Step(writeDelay - 1)
	if s.lookNow("r"); api.writes != 0 {
		t.Error("the controller has no time to say so")
	}
	s.clock.Step(1)
	s.lookNow("r")
	if p := api.object.Status.Placements; !p[0].Spent || p[1].Spent {
		t.Errorf("placements %+v", p)
	}
}

func TestToldWhy(t *testing.T) {
	for sentence, c := range map[string]struct {
		change          func(r *v1alpha1.Reservation)
		profile         profile
		reason, message string
	}{
		"its time is to come": {
			func(r *v1alpha1.Reservation) {
				r.Spec.StartTime = r.CreationTimestamp.DeepCopy()
				r.Spec.StartTime.Time = begin.Add(3600e9)
			}, yes,
			v1alpha1.ReservationReasonWaitingForStartTime, "2030-01-01T01:00:00Z",
		},
		"it cannot be reserved": {
			func(r *v1alpha1.Reservation) { r.Spec.Template.Spec.NodeSelector = map[string]string{"a b": "c"} }, yes,
			v1alpha1.ReservationReasonUnschedulable, "spec.template.spec.nodeSelector",
		},
		"several, and no plugin for gangs": {
			func(r *v1alpha1.Reservation) { r.Spec.Replicas = 2 }, profile{gangs: func() bool { return false }},
			v1alpha1.ReservationReasonUnschedulable, "spec.replicas: 2",
		},
		"there is no such class": {
			func(r *v1alpha1.Reservation) { r.Spec.Template.Spec.PriorityClassName = "x" }, yes,
			v1alpha1.ReservationReasonUnschedulable, `priorityClassName: "x"`,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t)
			api := seeking(t, s.make("r", c.change), c.profile, s)
			s.lookNow("r")
			if reason, message := api.scheduled(); reason != c.reason || !strings.Contains(message, c.message) {
				t.Errorf("%s: %s", reason, message)
			}
			s.Update(api.object)
			writes := api.writes
			if s.lookNow("r"); api.writes != writes {
				t.Error("it is said again though nothing has changed")
			}
		})
	}
}

// TestRewordedAtARate: other words for the same reason are written once in a while, the last ones in the end, and never
// faster than all Reservations together may be; another reason is written at once.
func TestRewordedAtARate(t *testing.T) {
	s := newStage(t)
	api := seeking(t, s.make("r"), yes, s)
	say := func(message string) {
		t.Helper()
		pod := s.entries["r"].pods[0].DeepCopy()
		pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: message}}
		s.reservePodChanged(pod)
		s.lookNow("r")
		s.Update(api.object)
	}
	expect := func(when string, writes int, message string) {
		t.Helper()
		if _, says := api.scheduled(); api.writes != writes || says != message {
			t.Errorf("%s: %d writes, and it says %q; want %d, %q", when, api.writes, says, writes, message)
		}
	}
	s.lookNow("r")
	say("text 0")
	expect("for the first time", 1, "text 0")
	for i := range 99 {
		s.clock.Step(rewordPause / 100)
		say(fmt.Sprint("text ", i+1))
	}
	expect("other words all the time", 1, "text 0")
	s.clock.Step(rewordPause / 100)
	s.lookNow("r")
	s.Update(api.object)
	expect("after a while", 2, "text 99")

	s.clock.Step(rewordPause)
	for s.rewords.AllowN(s.clock.Now(), 1) {
	} // as for other Reservations
	say("text 100")
	expect("other Reservations have used up the rate", 2, "text 99")
	s.clock.Step(rewordPause)
	s.lookNow("r")
	s.Update(api.object)
	expect("the rate allows it again", 3, "text 100")

	api.change(func(r *v1alpha1.Reservation) {
		meta.FindStatusCondition(r.Status.Conditions, v1alpha1.ReservationScheduled).Reason = v1alpha1.ReservationReasonPreempted
	})
	s.Update(api.object)
	say("text 101")
	expect("another reason", 4, "text 101")
}

// TestWritesWhatItKnows: once the scheduler knows a spec that has changed, the condition Scheduled says so.
func TestWritesWhatItKnows(t *testing.T) {
	s := newStage(t)
	placed := func(generation int64) *v1alpha1.Reservation {
		return s.make("r", on("a"), func(r *v1alpha1.Reservation) {
			r.Generation = generation
			r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ReservationScheduled, Status: metav1.ConditionTrue,
				Reason: v1alpha1.ReservationReasonScheduled, ObservedGeneration: 1}}
		})
	}
	api := seeking(t, placed(1), yes, s)
	if s.lookNow("r"); api.writes != 0 {
		t.Errorf("%d writes, and nothing has changed", api.writes)
	}
	s.Update(placed(2))
	api.object = s.entries["r"].object
	leads := make(chan struct{})
	s.leading = leads
	if s.lookNow("r"); api.writes != 0 {
		t.Error("a process that does not schedule says that the scheduler knows")
	}
	close(leads)
	s.lookNow("r")
	if c := meta.FindStatusCondition(api.object.Status.Conditions, v1alpha1.ReservationScheduled); c.ObservedGeneration != 2 {
		t.Errorf("it says that generation %d is known, want 2", c.ObservedGeneration)
	}
}
