package share

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestReturn: a budget to which victims are returned is as it was before it granted them.
func TestReturn(t *testing.T) {
	granted := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 6))
		w := randomWorld(r, 8, func() int64 { return 4 + r.Int64N(8) }, func() int64 { return 1 + r.Int64N(6) })
		for i := range w.jobs {
			w.jobs[i].node = waits
		}
		for i := range w.jobs {
			if node := r.IntN(len(w.nodes)); w.free(node) >= w.jobs[i].size {
				w.start(i, node)
			}
		}
		for _, job := range w.jobs {
			reclaim := NewReclaim(map[string]Vector{job.queue: gpus(job.size)}, w.standings(), nil)
			if reclaim == nil {
				continue
			}
			parts := r.IntN(2) == 0
			budget, untouched := reclaim.Budget(w.standings(), parts), reclaim.Budget(w.standings(), parts)
			var taken []int
			for i, other := range w.jobs {
				if budget.Take(other.queue, gpus(other.size), i%2 == 0) {
					taken = append(taken, i)
				}
			}
			r.Shuffle(len(taken), func(i, j int) { taken[i], taken[j] = taken[j], taken[i] })
			for _, i := range taken {
				budget.Return(w.jobs[i].queue, gpus(w.jobs[i].size))
			}
			granted += len(taken)
			for i, other := range w.jobs {
				for range 2 {
					if got, want := budget.Take(other.queue, gpus(other.size), i%2 == 0), untouched.Take(other.queue, gpus(other.size), i%2 == 0); got != want {
						t.Errorf("seed %d: %d of queue %s granted: %v, want %v", seed, other.size, other.queue, got, want)
					}
				}
			}
			if !reflect.DeepEqual(budget.left, untouched.left) {
				t.Errorf("seed %d: %v is left, want %v", seed, budget.left, untouched.left)
			}
		}
	}
	if granted < 100 {
		t.Errorf("%d victims tell little", granted)
	}
}
