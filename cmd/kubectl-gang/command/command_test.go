package command

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestRunAfterABrokenConnection: a connection whose other end is closed does not end the program.
func TestRunAfterABrokenConnection(t *testing.T) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	must.Succeed(t, err)
	connection := os.NewFile(uintptr(ends[0]), "connection")
	defer connection.Close()
	must.Succeed(t, syscall.Close(ends[1]))
	code := Run(genericiooptions.IOStreams{Out: io.Discard, ErrOut: io.Discard}, func(ctx context.Context, _ *access.Access) error {
		if _, err := connection.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("writing to a closed connection: %v, want %v", err, syscall.EPIPE)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
			return nil
		}
	})
	if code != 0 {
		t.Errorf("the program ended with %d, want 0", code)
	}
}
