package reservations

import (
	"fmt"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestEndsWhileLearned: a pod that ends while its Reservation, of which many pods use a part, is taken in anew gives
// back its part for good.
func TestEndsWhileLearned(t *testing.T) {
	s := newStage(t)
	r := s.make("r", on("a"), shared)
	s.Update(r)
	const users = 100
	pods := map[int]*v1.Pod{}
	number := 0
	come := func(i int) {
		number++
		pods[i] = bound(owner(fmt.Sprint("p", number), "10m"), "a", r, 0)
		s.userChanged(pods[i])
	}
	for i := range users {
		come(i)
	}
	for round := range 200 {
		now := s.make("r", on("a"), shared)
		var both sync.WaitGroup
		both.Go(func() { s.Update(now) })
		both.Go(func() {
			for i := range users {
				s.podEnded(pods[i])
			}
		})
		both.Wait()
		for i := range users {
			if one, has := s.holds.HoldOf(pods[i].UID); has {
				t.Fatalf("round %d: pod %s is gone, and the ledger has %v for it", round, pods[i].Name, one)
			}
			come(i)
		}
	}
}
