// Package await waits in tests. Every wait ends: with what was waited for, or with a failure that names it.
package await

import (
	"context"
	"errors"
	"testing"
	"time"
)

const (
	// patience is the longest wait for something that has to happen. It is long, for machines that are busy.
	patience = 30 * time.Second
	// soonest and rarest are how often something is asked for: less often as time goes by.
	soonest, rarest = time.Millisecond, 50 * time.Millisecond
)

// Pause lets time pass, unless ctx ends before.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Until returns when holds does. What completes "waiting until".
func Until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	NoError(tb, what, func() error {
		if !holds() {
			return errors.New("it never was so")
		}
		return nil
	})
}

// NoError returns when check finds nothing wrong. What completes "waiting until".
func NoError(tb testing.TB, what string, check func() error) {
	tb.Helper()
	noErrorWithin(tb, patience, what, check)
}

func noErrorWithin(tb testing.TB, within time.Duration, what string, check func() error) {
	tb.Helper()
	begin := time.Now()
	for every := soonest; ; every = min(2*every, rarest) {
		err := check()
		if err == nil {
			return
		}
		if time.Since(begin) > within {
			tb.Fatalf("waiting until %s: %v, for %s", what, err, within)
		}
		time.Sleep(every)
	}
}

// Value returns the next value of a channel. What completes "waiting for".
func Value[T any](tb testing.TB, what string, from <-chan T) T {
	tb.Helper()
	return valueWithin(tb, patience, what, from)
}

func valueWithin[T any](tb testing.TB, within time.Duration, what string, from <-chan T) (value T) {
	tb.Helper()
	select {
	case value = <-from:
	case <-time.After(within):
		tb.Fatalf("waiting for %s: nothing comes, for %s", what, within)
	}
	return value
}

// Drain returns the values that a channel has, without waiting for more.
func Drain[T any](from <-chan T) (values []T) {
	for {
		select {
		case value := <-from:
			values = append(values, value)
		default:
			return values
		}
	}
}

// Closed returns a closed channel: nobody waits for what it stands for.
func Closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}
