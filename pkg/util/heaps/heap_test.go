package heaps

import (
	"cmp"
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
)

type item struct{ value, index int }

// TestHeap: whatever is pushed, changed and removed, the first item is the least, and items know their places.
func TestHeap(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		h := &Heap[*item]{
			Compare: func(a, b *item) int { return cmp.Compare(a.value, b.value) },
			Index:   func(i *item) *int { return &i.index },
		}
		for range 50 {
			switch n := h.Len(); {
			case n == 0 || r.IntN(2) == 0:
				heap.Push(h, &item{value: r.IntN(100)})
			case r.IntN(2) == 0:
				one := h.Items[r.IntN(n)]
				one.value = r.IntN(100)
				heap.Fix(h, one.index)
			default:
				one := h.Items[r.IntN(n)]
				if gone := heap.Remove(h, one.index); gone != one || one.index != -1 {
					t.Fatalf("seed %d: removed %v at %d, want %v at -1", seed, gone, one.index, one)
				}
			}
			for i, one := range h.Items {
				if one.index != i {
					t.Fatalf("seed %d: the item at %d has index %d", seed, i, one.index)
				}
			}
			if h.Len() > 0 && h.Items[0].value != slices.MinFunc(h.Items, h.Compare).value {
				t.Fatalf("seed %d: the first of %d items is not the least", seed, h.Len())
			}
			odd := func(i *item) bool { return i.value%2 != 0 }
			sorted := slices.SortedFunc(slices.Values(h.Items), h.Compare)
			at, first := slices.IndexFunc(sorted, odd), h.First(odd)
			if (at < 0) != (first == nil) || first != nil && first.value != sorted[at].value {
				t.Fatalf("seed %d: %v is not the first of the odd ones", seed, first)
			}
		}
	}
}
