package binder

import (
	"context"
	"slices"
	"sync"
)

// Slots bounds the binding calls of a process. It also makes the scheduling loop wait
// when so many pods wait for a slot that scheduling more would only pile them up.
type Slots struct {
	mu    sync.Mutex
	limit int
	used  int
	// waiting are the calls in line for a slot, first come, first served, so that the
	// members of a gang, which come together, bind together.
	waiting []chan struct{}
	// room is closed, and replaced, when the line has become short enough.
	room chan struct{}
}

// NewSlots makes slots without a bound; the plugin's arguments set one.
func NewSlots() *Slots { return &Slots{room: make(chan struct{})} }

// resize sets the bound. Several profiles may set it; the largest counts, since
// all use the same API server.
func (s *Slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(s.limit, limit)
}

func (s *Slots) acquire(ctx context.Context) error {
	s.mu.Lock()
	if s.limit == 0 || s.used < s.limit {
		s.used++
		s.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	s.waiting = append(s.waiting, turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		s.leaveQueue(turn)
		return ctx.Err()
	}
}

// leaveQueue gives up a place in line, or the slot that was just handed over.
func (s *Slots) leaveQueue(turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, turn); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		s.wake()
		return
	}
	s.passTurn()
}

func (s *Slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passTurn()
}

// passTurn hands a slot to the next in line.
func (s *Slots) passTurn() {
	if len(s.waiting) > 0 {
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	} else {
		s.used--
	}
	s.wake()
}

// wake releases the callers that wait for room, if there is any.
func (s *Slots) wake() {
	if !s.isFull() {
		close(s.room)
		s.room = make(chan struct{})
	}
}

// isFull reports whether enough calls wait for a slot to keep the slots busy while the next pods are scheduled, which
// takes a fraction of the time that binding does.
func (s *Slots) isFull() bool { return s.limit > 0 && len(s.waiting) >= max(1, s.limit/4) }

// WaitForRoom blocks while at least a quarter as many pods wait as there are slots. The
// scheduling loop calls it before it takes the next pod: that pod would only
// join the line, and a more urgent one may still come.
func (s *Slots) WaitForRoom(ctx context.Context) {
	for {
		s.mu.Lock()
		crowded, room := s.isFull(), s.room
		s.mu.Unlock()
		if !crowded {
			return
		}
		select {
		case <-room:
		case <-ctx.Done():
			return
		}
	}
}
