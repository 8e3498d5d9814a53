// Package heaps makes a heap of a list and an order.
package heaps

// Heap is a heap for the functions of container/heap. Items[0] is the first in order.
type Heap[T any] struct {
	Items []T
	// Compare is the order, total.
	Compare func(a, b T) int
	// Index is where an item keeps its place in Items, -1 once it is removed; nil if items do not know their places.
	Index func(T) *int
}

// First returns the first in order of the items that are wanted; the zero value for none. It costs a look at each item
// before it, and at twice as many after these.
func (h *Heap[T]) First(wanted func(T) bool) (first T) {
	found := false
	var search func(at int)
	search = func(at int) {
		switch {
		case at >= len(h.Items) || found && h.Compare(first, h.Items[at]) < 0:
		case wanted(h.Items[at]):
			first, found = h.Items[at], true
		default:
			search(2*at + 1)
			search(2*at + 2)
		}
	}
	search(0)
	return first
}

// Len, Less and Swap are the methods of sort.Interface.
func (h *Heap[T]) Len() int           { return len(h.Items) }
func (h *Heap[T]) Less(i, j int) bool { return h.Compare(h.Items[i], h.Items[j]) < 0 }

func (h *Heap[T]) Swap(i, j int) {
	h.Items[i], h.Items[j] = h.Items[j], h.Items[i]
	h.setIndex(h.Items[i], i)
	h.setIndex(h.Items[j], j)
}

// Push adds an item at the end.
func (h *Heap[T]) Push(item any) {
	h.Items = append(h.Items, item.(T))
	h.setIndex(h.Items[len(h.Items)-1], len(h.Items)-1)
}

// Pop removes the item at the end.
func (h *Heap[T]) Pop() any {
	last := h.Items[len(h.Items)-1]
	h.Items = h.Items[:len(h.Items)-1]
	h.setIndex(last, -1)
	return last
}

func (h *Heap[T]) setIndex(item T, i int) {
	if h.Index != nil {
		*h.Index(item) = i
	}
}
