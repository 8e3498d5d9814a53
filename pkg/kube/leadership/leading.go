// Package leadership has what only the leading process runs: the one that schedules. Before it schedules, another
// process may, and what both wrote would contradict each other.
//
// It does not report which process leads: a process that has begun to schedule does so until it ends.
package leadership

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Signal is a channel that is closed once this process schedules.
type Signal <-chan struct{}

// Given reports whether this process schedules.
func (s Signal) Given() bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

// Wait returns true once this process schedules, and false if ctx ends before.
func (s Signal) Wait(ctx context.Context) bool {
	select {
	case <-s:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Every calls a function once per period, from one period after this process begins to schedule until ctx ends. After a
// call that takes longer than a period, the next one follows at once; at most one missed call is made up for.
func (s Signal) Every(ctx context.Context, clock clock.WithTicker, period time.Duration, do func()) {
	if !s.Wait(ctx) {
		return
	}
	ticker := clock.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		do()
	}
}
