package kubectlgang_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// forecasts is the program that has the scheduler in it.
const forecasts = "kubectl-gang-forecast"

// testWithoutForecasts: where the program with the scheduler is not installed, explain tells all else and says so, and
// the other commands that need it say what to do. It may be beside kubectl-gang, or in the PATH.
func (s *stage) testWithoutForecasts(t *testing.T) {
	alone := *s
	alone.binary = filepath.Join(t.TempDir(), "kubectl-gang")
	if out, err := exec.CommandContext(t.Context(), "cp", s.binary, alone.binary).CombinedOutput(); err != nil {
		t.Fatalf("copying: %v: %s", err, out)
	}
	if info, err := os.Stat(alone.binary); err != nil || info.Size() > 60e6 {
		t.Errorf("kubectl-gang has %v bytes, %v; want at most 60 MB", info.Size(), err)
	}
	const told = "the scheduler is in a program of its own: put kubectl-gang-forecast, of the same release, beside kubectl-gang or in the PATH"
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	for args, c := range map[string]explanation{
		"explain pretrain -n llm": {want: []string{
			`llm/pretrain waits: gang "llm/pretrain" does not fit in any rack: `, "Note: what the scheduler would decide now is not known: " + told,
		}},
		"explain pretrain -n llm --nodes +1:gpu-2 -o jsonpath={.items[0].unasked}": {want: []string{told}},
		"explain -n team-a":      {want: []string{"team-a/late waits: "}},
		"explain nothing -n llm": {true, []string{`error: there is no gang "llm/nothing"`, told}},
		"explain --help":         {want: []string{"Usage: kubectl gang explain"}},
		"whatif -f x --preempt":  {true, []string{"error: " + told}},
		"dump -f x":              {true, []string{"error: " + told}},
		"list -n llm":            {want: []string{"pretrain"}},
	} {
		stdout, stderr, err := alone.try(t, strings.Fields(args)...)
		if (err != nil) != c.fails {
			t.Errorf("kubectl gang %s: %v", args, err)
		}
		said := strings.Join(strings.Fields(stdout+stderr), " ") // however it is wrapped
		for _, want := range c.want {
			if !strings.Contains(said, want) {
				t.Errorf("kubectl gang %s does not say %q:\n%s", args, want, said)
			}
		}
	}
	t.Setenv("PATH", filepath.Dir(s.binary)+string(filepath.ListSeparator)+path)
	if out := alone.run(t, "explain", "pretrain", "-n", "llm", "--scheduler-config=testdata/scheduler.yaml"); !strings.HasPrefix(out, "llm/pretrain waits: no rack has room for 3; best rack r1 fits 2\n") {
		t.Errorf("with %s in the PATH explain says\n%s", forecasts, out)
	}
}

// testInterrupted: the program with the scheduler ends with kubectl gang, and leaves nothing.
func (s *stage) testInterrupted(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), s.binary, "dump", "-f", filepath.Join(dir, "dump"), "--server=http://"+silent.Addr().String(), "--scheduler-config=testdata/scheduler.yaml")
	cmd.Env = append(os.Environ(), "KUBECONFIG=", "TMPDIR="+dir)
	var stderr bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &stderr, time.Second // the other program has stderr, too
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Accept(); err != nil { // it is asked, and does not answer
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 || time.Since(began) > 4*time.Second {
		t.Errorf("asked to end kubectl gang ends with %v after %s: %s", err, time.Since(began), stderr.String())
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("kubectl gang leaves %v, %v", left, err)
	}
}
