package await

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// failing is a test that keeps why it failed.
type failing struct {
	testing.TB
	why string
}

func (*failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// whyFails runs a wait, and returns why it failed; empty: it did not.
func whyFails(wait func(tb testing.TB)) string {
	f, done := &failing{}, make(chan struct{})
	go func() {
		defer close(done)
		wait(f)
	}()
	<-done
	return f.why
}

// TestWaits: each ends, and the failure names what it waited for.
func TestWaits(t *testing.T) {
	const short = 20 * time.Millisecond
	tries := 0
	full := make(chan int, 1)
	full <- 7
	for sentence, c := range map[string]struct {
		wait func(tb testing.TB)
		want string
	}{
		"what holds is not waited for": {func(tb testing.TB) { Until(tb, "it is so", func() bool { return true }) }, ""},
		"what comes to hold is": {func(tb testing.TB) {
			Until(tb, "it is so", func() bool { tries++; return tries > 3 })
		}, ""},
		"what never does fails, with the last error": {func(tb testing.TB) {
			noErrorWithin(tb, short, "it is so", func() error { return errors.New("it is not") })
		}, "waiting until it is so: it is not, for 20ms"},
		"a value that is there": {func(tb testing.TB) {
			if got := Value(tb, "a number", full); got != 7 {
				t.Errorf("got %d", got)
			}
		}, ""},
		"a value that never comes fails": {func(tb testing.TB) { valueWithin(tb, short, "a number", make(chan int)) }, "waiting for a number: nothing comes, for 20ms"},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := whyFails(c.wait); got != c.want {
				t.Errorf("failed with %q, want %q", got, c.want)
			}
		})
	}
}

// TestPause: it ends with its context.
func TestPause(t *testing.T) {
	if err := Pause(t.Context(), time.Millisecond); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := Pause(ctx, time.Hour); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("error %v", err)
	}
}
