package binder

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// line is goroutines that want a slot, in this order.
type line struct {
	slots *Slots
	// served are those that got a slot, in order.
	served []int
}

// want acquires a slot on behalf of a pod and returns the function that gives up.
func (l *line) want(t *testing.T, pod int) (cancel func()) {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if err := l.slots.acquire(ctx); err == nil {
			l.served = append(l.served, pod) // one at a time: the bubble waits in between
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("acquire: %v", err)
		}
	}()
	synctest.Wait()
	return cancel
}

func (l *line) release() {
	l.slots.release()
	synctest.Wait()
}

func slotsOf(limit int) *Slots {
	s := NewSlots()
	s.resize(limit)
	return s
}

func TestSlots(t *testing.T) {
	for sentence, c := range map[string]struct {
		limit int
		do    func(t *testing.T, l *line)
		want  []int
		used  int
	}{
		"no more than the bound": {2, func(t *testing.T, l *line) {
			for pod := range 5 {
				l.want(t, pod)
			}
		}, []int{0, 1}, 2},
		"no bound is none": {0, func(t *testing.T, l *line) {
			for pod := range 5 {
				l.want(t, pod)
			}
		}, []int{0, 1, 2, 3, 4}, 5},
		"who came first is served first": {1, func(t *testing.T, l *line) {
			for pod := range 4 {
				l.want(t, pod)
			}
			l.release()
			l.release()
			l.want(t, 4) // behind 3
			l.release()
			l.release()
		}, []int{0, 1, 2, 3, 4}, 1},
		"a slot that nobody waits for is free": {1, func(t *testing.T, l *line) {
			l.want(t, 0)
			l.release()
			l.want(t, 1)
			l.release()
		}, []int{0, 1}, 0},
		"who gives up leaves the line": {1, func(t *testing.T, l *line) {
			l.want(t, 0)
			cancel := l.want(t, 1)
			l.want(t, 2)
			cancel()
			synctest.Wait()
			l.release()
		}, []int{0, 2}, 1},
		"who gives up at the moment of being served passes the slot on": {1, func(t *testing.T, l *line) {
			l.want(t, 0)
			turn := make(chan struct{})
			l.slots.waiting = append(l.slots.waiting, turn) // 1
			l.want(t, 2)
			l.slots.release() // to 1
			l.slots.leaveQueue(turn)
			synctest.Wait()
		}, []int{0, 2}, 1},
		"and frees it where nobody waits": {1, func(t *testing.T, l *line) {
			l.want(t, 0)
			turn := make(chan struct{})
			l.slots.waiting = append(l.slots.waiting, turn)
			l.slots.release()
			l.slots.leaveQueue(turn)
			synctest.Wait()
		}, []int{0}, 0},
		"a context that is over gets no slot that it has to wait for": {1, func(t *testing.T, l *line) {
			l.want(t, 0)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := l.slots.acquire(ctx); err == nil {
				t.Error("it got one")
			}
			l.release()
		}, []int{0}, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &line{slots: slotsOf(c.limit)}
				c.do(t, l)
				if !slices.Equal(l.served, c.want) {
					t.Errorf("served %v, want %v", l.served, c.want)
				}
				if l.slots.used != c.used {
					t.Errorf("%d slots in use, want %d", l.slots.used, c.used)
				}
			})
		})
	}
}

func TestTheLargestBoundCounts(t *testing.T) {
	s := slotsOf(3)
	s.resize(8)
	s.resize(2)
	if s.limit != 8 {
		t.Errorf("bound %d, want 8", s.limit)
	}
}

func TestWaitForRoom(t *testing.T) {
	// All of 8 slots are taken; a line of 2 is too long.
	const slots, long = 8, 2
	for sentence, c := range map[string]struct {
		waiting int
		then    func(l *line, leave, giveUp func())
		waits   bool // at first
		goesOn  bool // after then
	}{
		"who finds nobody waiting goes on":                {waiting: 0, goesOn: true},
		"nor does a short line stop it":                   {waiting: long - 1, goesOn: true},
		"a long one does":                                 {waiting: long, waits: true},
		"until a slot is passed on":                       {waiting: long, waits: true, then: func(l *line, _, _ func()) { l.release() }, goesOn: true},
		"but not while the line is too long still":        {waiting: long + 1, waits: true, then: func(l *line, _, _ func()) { l.release() }},
		"until somebody leaves the line":                  {waiting: long, waits: true, then: func(_ *line, leave, _ func()) { leave() }, goesOn: true},
		"a scheduler that goes down does not wait either": {waiting: long, waits: true, then: func(_ *line, _, giveUp func()) { giveUp() }, goesOn: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &line{slots: slotsOf(slots)}
				leave := func() {}
				for pod := range slots + c.waiting {
					leave = l.want(t, pod)
				}
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				var gone atomic.Bool
				go func() {
					l.slots.WaitForRoom(ctx)
					gone.Store(true)
				}()
				synctest.Wait()
				if gone.Load() == c.waits {
					t.Fatalf("it waits: %v, want %v", !gone.Load(), c.waits)
				}
				if c.then != nil {
					c.then(l, leave, giveUp)
					synctest.Wait()
				}
				if gone.Load() != c.goesOn {
					t.Errorf("it goes on: %v, want %v", gone.Load(), c.goesOn)
				}
			})
		})
	}
}

// TestSlotsUnderLoad is for the race detector, and counts what is in flight.
func TestSlotsUnderLoad(t *testing.T) {
	const bound = 3
	s := slotsOf(bound)
	var inFlight, got atomic.Int64
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if (worker+i)%5 == 0 {
					cancel()
				}
				s.WaitForRoom(ctx)
				if s.acquire(ctx) == nil {
					if n := inFlight.Add(1); n > bound {
						t.Errorf("%d in flight", n)
					}
					got.Add(1)
					inFlight.Add(-1)
					s.release()
				}
				cancel()
			}
		})
	}
	group.Wait()
	if s.used != 0 || len(s.waiting) != 0 || got.Load() < 8*200*4/5 {
		t.Errorf("%d in use, %d waiting, %d served", s.used, len(s.waiting), got.Load())
	}
}
