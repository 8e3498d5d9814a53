package crds

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// A watch starts once, when it is first needed, again after an error, and not before it is prepared.
func TestOnDemand(t *testing.T) {
	var none OnDemand
	if err := none.Ensure(); err != nil {
		t.Errorf("nothing to watch: %v", err)
	}
	var d OnDemand
	var prepared atomic.Bool
	needed, starts := make(chan error), 0
	failing := errors.New("not yet")
	err := d.Prepare(func() (func() error, error) {
		go func() { needed <- d.Ensure() }() // Ensure may be called first
		prepared.Store(true)
		return func() error {
			if starts++; starts == 1 {
				return failing
			}
			return nil
		}, nil
	})
	must.Succeed(t, err)
	if err := await.Value(t, "the first need", needed); !errors.Is(err, failing) || !prepared.Load() {
		t.Errorf("the first need: %v, want %v", err, failing)
	}
	for range 3 {
		if err := d.Ensure(); err != nil {
			t.Error(err)
		}
	}
	if starts != 2 {
		t.Errorf("started %d times, want twice: the first failed", starts)
	}
}
