package observe

import (
	"context"
	"sync"
)

// Board is where what was seen is kept and waited for: it belongs into a struct beside what it guards. Code that reads
// or changes that holds the lock, and code that has changed it calls Changed.
type Board struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change; nil: no goroutine waits
}

// Lock locks what the board guards.
func (b *Board) Lock() { b.mu.Lock() }

// Unlock unlocks it.
func (b *Board) Unlock() { b.mu.Unlock() }

// Changed wakes the goroutines that wait. The lock is held.
func (b *Board) Changed() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// Next returns a channel that is closed at the next change. The lock is held.
func (b *Board) Next() <-chan struct{} {
	if b.changed == nil {
		b.changed = make(chan struct{})
	}
	return b.changed
}

// Wait returns when holds returns true; it is called with the lock held after every change.
func (b *Board) Wait(ctx context.Context, holds func() bool) error {
	for {
		b.Lock()
		ok, next := holds(), b.Next()
		b.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-next:
		}
	}
}
