package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
)

var busy = flag.Bool("busy", false, "keep all cores busy beside the scenarios: they come out the same, and may take longer")

const (
	// slower is how many times as long everything may take on a busy machine.
	slower = 4
	// spinVariable is set for processes that do nothing but keep a core busy.
	spinVariable = "LOCKSTEP_KEEP_A_CORE_BUSY"
)

// keepBusy starts a process for each core that keeps it busy until this process ends, or stop is called.
func keepBusy() (stop func() error, err error) {
	var started []*exec.Cmd
	var pipes []io.Closer
	stop = func() error {
		var errs []error
		for _, pipe := range pipes {
			errs = append(errs, pipe.Close())
		}
		for _, one := range started {
			errs = append(errs, one.Wait())
		}
		return errors.Join(errs...)
	}
	for range runtime.NumCPU() {
		one := exec.Command(os.Args[0])
		one.Env = append(os.Environ(), spinVariable+"=1")
		pipe, err := one.StdinPipe()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("making a pipe: %w", err), stop())
		}
		if err := one.Start(); err != nil {
			return nil, errors.Join(fmt.Errorf("starting a process that keeps a core busy: %w", err), stop())
		}
		pipes, started = append(pipes, pipe), append(started, one)
	}
	return stop, nil
}

// spin keeps a core busy until the process at the other end of standard input ends, and then ends this one.
func spin() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	for n := uint64(0); ; n++ {
	}
}
