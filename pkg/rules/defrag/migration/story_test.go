package migration

import (
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// world is a cluster of one pod, as far as its migration is concerned.
type world struct {
	*testing.T
	random *rand.Rand
	m      *v1alpha1.PodMigration
	seen   Seen
	now    time.Time
	// evictions counts those that the API server allowed.
	evictions int
}

// story plays one migration: at each step the controller does what follows, or crashes before, and then
// something happens.
func story(t *testing.T, seed uint64) {
	w := &world{T: t, random: rand.New(rand.NewPCG(seed, 1)), m: aMigration(), now: begin, seen: Seen{Pod: running()}}
	w.seen.Pod.Successors = &v1alpha1.MigrationSuccessors{Controller: &v1alpha1.ReservationOwnerController{Name: "c"}}
	if w.random.IntN(4) == 0 {
		w.m.Spec.Suspend = true
	}
	for range 400 {
		w.step()
		if w.random.IntN(3) > 0 {
			w.happen()
		}
		w.now = w.now.Add(time.Duration(w.random.IntN(3000)) * time.Millisecond)
	}
	w.m.Spec.Suspend, w.seen.Alike = false, ""
	for range 40 { // all comes to rest
		w.step()
		w.now = w.now.Add(10 * time.Second)
	}
	if !Ended(w.m.Status.Phase) {
		t.Errorf("it has not ended: %s, %v", w.m.Status.Phase, w.seen)
	}
	if w.seen.Reservation != nil {
		t.Errorf("something is reserved for a migration that has ended: %v", w.seen.Reservation)
	}
	if w.evictions > 1 {
		t.Errorf("%d evictions", w.evictions)
	}
}

// step is a look at the migration. A status is written before anything is done, and a crash may come between.
func (w *world) step() {
	got := Next(w.m, w.seen, w.now)
	if Ended(w.m.Status.Phase) && got.Status.Phase != w.m.Status.Phase {
		w.Errorf("an end that is final became %s", got.Status.Phase)
	}
	before := w.m.Status.Phase
	w.m.Status = got.Status
	if w.random.IntN(3) == 0 || before != got.Status.Phase { // it has crashed, or what was written is read first
		return
	}
	r := w.seen.Reservation
	switch got.Action {
	case Reserve:
		if r == nil {
			w.seen.Reservation = &Reservation{Ours: true, Phase: v1alpha1.ReservationPending}
		}
	case Open:
		if w.seen.Alike != "" && w.seen.Pod != nil && w.seen.Pod.UID == w.m.Spec.PodUID && !w.seen.Pod.Ending {
			w.Error("the target is open to the successor of another pod")
		}
		r.Open, r.Observed = true, false
	case Close:
		r.Open, r.Observed = false, false
	case Evict:
		if r == nil || !r.Ours || !r.Open || !r.Observed || r.Phase != v1alpha1.ReservationAvailable || r.Node != w.m.Spec.TargetNode {
			w.Errorf("the pod is evicted, and its target is %v", r)
		}
		if before != v1alpha1.MigrationRunning {
			w.Error("the pod is evicted, and nothing says so")
		}
		if w.seen.Pod == nil || w.seen.Pod.UID != w.m.Spec.PodUID || w.seen.Pod.Ending {
			w.Errorf("an eviction of %v", w.seen.Pod)
		}
		if w.m.Spec.Suspend {
			w.Error("the pod is evicted, and it is suspended")
		}
		if w.random.IntN(3) == 0 {
			w.m.Status = Barred(w.m, "the budget is used up", w.now)
			return
		}
		w.evictions++
		w.seen.Pod = &Pod{UID: w.seen.Pod.UID, Node: w.seen.Pod.Node, Controlled: true, Ending: true}
	}
	if Ended(w.m.Status.Phase) && r != nil && r.Ours {
		w.seen.Reservation = nil
	}
}

// happen lets something happen that the controller has not done.
func (w *world) happen() {
	r, pod := w.seen.Reservation, w.seen.Pod
	switch n := w.random.IntN(40); {
	case n < 12 && r != nil && r.Phase == v1alpha1.ReservationPending:
		r.Phase, r.Node = v1alpha1.ReservationAvailable, w.m.Spec.TargetNode
	case n < 12 && r != nil:
		r.Observed = true
	case n < 20 && pod != nil && pod.Ending:
		w.seen.Pod = nil
	case n < 28 && (w.evictions > 0 || pod == nil) && r != nil && r.Open && r.Phase == v1alpha1.ReservationAvailable:
		r.Phase, r.Users = v1alpha1.ReservationSucceeded, []v1alpha1.ReservationConsumer{successor}
	case n == 30 && r != nil: // its node is lost
		r.Phase, r.Node = v1alpha1.ReservationPending, ""
	case n == 31 && r != nil: // it has expired
		r.Phase = v1alpha1.ReservationFailed
	case n == 32 && r != nil: // it was deleted
		w.seen.Reservation = nil
	case n == 33 && pod != nil && !pod.Ending: // the pod is deleted
		pod.Ending = true
	case n == 34 && pod == nil: // its name is used again
		w.seen.Pod = &Pod{UID: types.UID("uid-p-" + w.now.String()), Controlled: true}
	case n == 35:
		w.m.Spec.Suspend = !w.m.Spec.Suspend
	case n == 36:
		w.seen.Alike = "another"
	case n == 38 && pod == nil: // its successor has got a node
		w.seen.Successor = &Successor{Name: "p-3", UID: "uid-p-3", Node: []string{"from", "to", "else"}[w.random.IntN(3)]}
	case n == 37:
		w.seen.Alike = ""
	}
}
