package binder

import (
	"context"
	"sync"
)

// Slots bounds the binding calls of a process. It also tells the scheduling loop
// when enough pods wait for a slot that scheduling more would only pile them up.
type Slots struct {
	mu    sync.Mutex
	limit int
	used  int
	// waiting are those in line for a slot, first come first served, so that the
	// members of a gang, which come together, bind together.
	waiting []chan struct{}
	// room is closed, and made anew, when the line has become short enough.
	room chan struct{}
}

// NewSlots makes slots without a bound; the plugin's arguments set one.
func NewSlots() *Slots { return &Slots{room: make(chan struct{})} }

// resize sets the bound. Several profiles may set it; the largest counts, since
// the API server is one for all.
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
		s.leave(turn)
		return ctx.Err()
	}
}

// leave gives up a place in line, or the slot that was just handed over.
func (s *Slots) leave(turn chan struct{}) {
	s.mu.Lock()
	for i, other := range s.waiting {
		if other == turn {
			s.waiting = append(s.waiting[:i:i], s.waiting[i+1:]...)
			s.mu.Unlock()
			return
		}
	}
	s.mu.Unlock()
	s.release()
}

func (s *Slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) > 0 {
		close(s.waiting[0])
		s.waiting = s.waiting[1:]
	} else {
		s.used--
	}
	if !s.crowded() {
		close(s.room)
		s.room = make(chan struct{})
	}
}

// crowded: enough wait for a slot to keep the slots busy while the next pods are
// scheduled, which takes a fraction of the time that binding does.
func (s *Slots) crowded() bool { return s.limit > 0 && len(s.waiting) >= max(1, s.limit/4) }

// WaitForRoom blocks while a quarter as many pods wait as there are slots. The
// scheduling loop calls it before it takes the next pod: that pod would only
// join the line, and a more urgent one may still come.
func (s *Slots) WaitForRoom(ctx context.Context) {
	for {
		s.mu.Lock()
		crowded, room := s.crowded(), s.room
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
