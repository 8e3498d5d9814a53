package reservations

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/workloop"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// bill is what queues pay for, in CPUs, by what the ledger calls it.
type bill map[hold.ID]int64

func (b bill) Charge(id hold.ID, _ *v1.Pod, _ string, left hold.Taken) {
	b[id] = left.Request[v1.ResourceCPU] / 1000
}

func (bill) Recheck() {}

// TestChargedOnce: a queue pays for what owners leave, whichever object comes first.
func TestChargedOnce(t *testing.T) {
	for _, podFirst := range []bool{false, true} {
		s, charged := newStage(t), bill{}
		s.charges = charged
		r := s.make("r", on("a"), shared)
		pod := bound(owner("user", "3"), "a", r, 0)
		if podFirst {
			s.userChanged(pod)
		}
		s.Update(r)
		s.userChanged(pod)
		for s.toCharge.Len() > 0 {
			name, _ := s.toCharge.Get()
			s.acting.Lock()
			s.chargeReservation(name)
			s.acting.Unlock()
			s.toCharge.Done(name)
		}
		if got := charged[idOf(r.UID, 0)]; got != 1 {
			t.Errorf("the pod first: %v: %d CPUs are charged beside the 3 of the pod", podFirst, got)
		}
	}
}

// TestResized: a pod that is resized has another part of what it uses.
func TestResized(t *testing.T) {
	s := newStage(t)
	r := s.make("r", on("a"), shared)
	s.Update(r)
	before := bound(owner("user", "3"), "a", r, 0)
	s.userChanged(before)
	for cpu, want := range map[string]string{"1": "a: 3", "2": "a: 2"} {
		s.podChanged(before, bound(owner("user", cpu), "a", r, 0))
		if got := s.held(); got != want {
			t.Errorf("held %q beside %s CPUs, want %q", got, cpu, want)
		}
	}
}

// TestAnotherCard: a placement that has come to another card of its node is held there.
func TestAnotherCard(t *testing.T) {
	s := newStage(t)
	at := func(card string) func(*v1alpha1.Reservation) {
		return func(r *v1alpha1.Reservation) {
			r.Status.Placements[0].Annotations = map[string]string{v1alpha1.GPUCardAnnotation: card}
		}
	}
	for want, card := range []string{"0", "1"} {
		s.Update(s.make("r", on("a"), shared, at(card)))
		if got := s.Cards("a"); len(got) != 1 || got[0].Card != want {
			t.Errorf("it is held as %+v, want card %d", got, want)
		}
	}
}

// TestTemplateOfAPod: what a template has of what its pod used means nothing.
func TestTemplateOfAPod(t *testing.T) {
	r := newStage(t).make("r", func(r *v1alpha1.Reservation) {
		r.Spec.Template.Annotations = map[string]string{v1alpha1.GPUCardAnnotation: "0", v1alpha1.ReservationAllocatedAnnotation: "{}", "mine": ""}
	})
	if got := templateOf(r).Annotations; len(got) != 1 {
		t.Errorf("annotations %v", got)
	}
}

// TestTakenInBind: a reserve pod that is taken while it waits to be bound with the others ends the round.
func TestTakenInBind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := served(t, 2)
		defer s.work.ShutDown()
		pods := s.entries["r"].pods
		failed := make(chan error, 1)
		go func() { failed <- s.Bind(t.Context(), pods[0], "node-0") }()
		synctest.Wait()
		must.Succeed(t, s.store.Delete(pods[0].Namespace, pods[0].Name, &metav1.Preconditions{UID: &pods[0].UID}))
		s.podEnded(pods[0]) // as the watch says
		if err := <-failed; err == nil {
			t.Error("it was bound")
		}
		if len(api.object.Status.Placements) > 0 {
			t.Errorf("placed %v", api.object.Status.Placements)
		}
	})
}

// TestTakenBeforeTheWatchSaysSo: a reserve pod that was deleted is not bound with the others, although the watch has
// not said so yet.
func TestTakenBeforeTheWatchSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, api := served(t, 2)
		defer s.work.ShutDown()
		pods := s.entries["r"].pods
		first := make(chan error, 1)
		go func() { first <- s.Bind(t.Context(), pods[0], "node-0") }()
		synctest.Wait()
		must.Succeed(t, s.store.Delete(pods[0].Namespace, pods[0].Name, &metav1.Preconditions{UID: &pods[0].UID}))
		if err := s.Bind(t.Context(), pods[1], "node-1"); err == nil {
			t.Error("the last was bound")
		}
		if err := <-first; err == nil {
			t.Error("the first was bound")
		}
		if len(api.object.Status.Placements) > 0 {
			t.Errorf("placed %v", api.object.Status.Placements)
		}
	})
}

// TestSpentIsSaid: that a placement was used is written in the end, also if this process leads only later, and
// if others were used before.
func TestSpentIsSaid(t *testing.T) {
	for sentence, play := range map[string]func(s *stage, api *server, r *v1alpha1.Reservation, lead func()){
		"it leads later": func(s *stage, _ *server, r *v1alpha1.Reservation, lead func()) {
			s.userChanged(bound(owner("one", "4"), "a", r, 0))
			s.userChanged(bound(owner("two", "4"), "b", r, 1))
			time.Sleep(2 * writeDelay)
			lead()
		},
		"one after the other, and the controller has told of the first": func(s *stage, api *server, r *v1alpha1.Reservation, lead func()) {
			lead()
			s.userChanged(bound(owner("one", "4"), "a", r, 0))
			time.Sleep(time.Second)
			api.mu.Lock()
			api.change(func(r *v1alpha1.Reservation) { r.Status.Placements[0].Spent = true })
			told := api.object.DeepCopy()
			api.mu.Unlock()
			s.Update(told)
			s.userChanged(bound(owner("two", "4"), "b", r, 1))
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, api := served(t, 2)
				defer s.work.ShutDown()
				leads := make(chan struct{})
				s.leading = leads
				api.change(func(r *v1alpha1.Reservation) {
					r.ResourceVersion, r.Status.Phase = "50", v1alpha1.ReservationAvailable
					r.Status.Placements = []v1alpha1.ReservationPlacement{{NodeName: "a"}, {Index: 1, NodeName: "b"}}
				})
				r := api.object.DeepCopy()
				s.Update(r)
				go workloop.Run(t.Context(), s.work, s.reconcile, "failed")
				play(s, api, r, func() { close(leads) })
				time.Sleep(time.Minute)
				api.mu.Lock()
				defer api.mu.Unlock()
				for _, p := range api.object.Status.Placements {
					if !p.Spent {
						t.Errorf("placement %d is not said to be spent", p.Index)
					}
				}
			})
		})
	}
}
