package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// busy is the part of the scenarios in busyFolders that TestBusy runs, and TestScenarios leaves out.
var busy part

func init() {
	flag.Var(&busy, "busy",
		"run this `part` of the scenarios of order, such as 1/3, while all cores are busy: they come out the same, only later")
}

// busyFolders have the scenarios whose outcome must not depend on how fast the machine is: the order in which pods
// start, and who makes way.
var busyFolders = []string{"preemption", "queues", "reclaim", "restarts-and-failures", "waiting"}

const (
	// slower is how many times as long everything may take on a busy machine.
	slower = 4
	// spinVariable is set for processes that do nothing but keep a core busy.
	spinVariable = "LOCKSTEP_KEEP_A_CORE_BUSY"
)

// runsBusy reports whether TestBusy runs a scenario.
func runsBusy(files []string, file string) bool {
	inFolders := slices.DeleteFunc(slices.Clone(files), func(file string) bool {
		return !slices.Contains(busyFolders, filepath.Base(filepath.Dir(file)))
	})
	return busy.has(slices.Index(inFolders, file))
}

// TestBusy runs scenarios while other processes keep all cores busy.
func TestBusy(t *testing.T) {
	if busy.of == 0 {
		t.Skip("it needs -busy, a part of the scenarios")
	}
	stop, err := keepBusy()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	patient := *runner
	patient.Slower = slower
	files := scenarioFiles(t)
	for _, file := range files {
		if runsBusy(files, file) {
			runScenario(t, &patient, file)
		}
	}
}

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
