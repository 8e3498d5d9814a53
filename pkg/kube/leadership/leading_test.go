package leadership

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// Nothing is done before the process schedules; then once per period, until the end.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		var calls atomic.Int32
		var ended atomic.Bool
		go func() {
			Signal(begin).Every(ctx, clock.RealClock{}, time.Second, func() { calls.Add(1) })
			ended.Store(true)
		}()
		after := func(sentence string, d time.Duration, want int32, wantEnded bool) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if calls.Load() != want || ended.Load() != wantEnded {
				t.Errorf("%s: %d calls, ended %t; want %d, %t", sentence, calls.Load(), ended.Load(), want, wantEnded)
			}
		}
		after("another process schedules", time.Minute, 0, false)
		close(begin)
		after("it begins", 999*time.Millisecond, 0, false)
		after("a period has passed", time.Millisecond, 1, false)
		after("three more have", 3*time.Second, 4, false)
		cancel()
		after("the process ends", 0, 4, true)
	})
}

// A process that ends before it schedules does nothing.
func TestEndsBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	never := Signal(nil)
	never.Every(ctx, clock.RealClock{}, time.Nanosecond, func() { t.Error("something is done") })
	if never.Given() || never.Wait(ctx) {
		t.Error("it schedules without a signal")
	}
	given := make(chan struct{})
	close(given)
	if !Signal(given).Given() || !Signal(given).Wait(t.Context()) || Signal(given).Wait(ctx) {
		t.Error("the signal is given, and what waits for it goes on unless the process ends")
	}
}
